"""Alerts."""

from datetime import datetime

from sqlalchemy import ForeignKey, Index, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from controlplane.storage.models.metadata import ID_LENGTH, NAME_LENGTH, Table, UtcDateTime


class AlertRow(Table):
    """One episode of an alert: `resolution` is 0 while open, so that one is open a fingerprint."""

    __tablename__ = "alerts"
    __table_args__ = (UniqueConstraint("fleet", "fingerprint", "resolution"), Index(None, "fleet", "state"))

    id: Mapped[str] = mapped_column(String(ID_LENGTH), primary_key=True)
    fleet: Mapped[str] = mapped_column(ForeignKey("fleets.name"))
    rule: Mapped[str] = mapped_column(String(64))
    subject: Mapped[str] = mapped_column(String(NAME_LENGTH))
    fingerprint: Mapped[str] = mapped_column(String(64))
    resolution: Mapped[int]
    severity: Mapped[str] = mapped_column(String(16))
    state: Mapped[str] = mapped_column(String(16))
    summary: Mapped[str] = mapped_column(Text)
    value: Mapped[float | None]
    threshold: Mapped[float | None]
    n: Mapped[int | None]
    n_breaches: Mapped[int]
    n_clear: Mapped[int]
    runbook: Mapped[str] = mapped_column(String(256))
    started_at: Mapped[datetime] = mapped_column(UtcDateTime)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)
    fired_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    resolved_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    acknowledged_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    acknowledged_by: Mapped[str | None] = mapped_column(String(NAME_LENGTH))
    silenced_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    silenced_by: Mapped[str | None] = mapped_column(String(NAME_LENGTH))
    notified_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
