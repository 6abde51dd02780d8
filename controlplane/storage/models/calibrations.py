"""Trace packs, calibration runs and the leases of jobs."""

from datetime import datetime

from sqlalchemy import ForeignKey, Index, LargeBinary, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from controlplane.storage.models.metadata import HASH_LENGTH, ID_LENGTH, NAME_LENGTH, Table, UtcDateTime


class TracePackRow(Table):
    """One trace pack; its bytes are in `trace_pack_blobs`, so that a listing does not load them."""

    __tablename__ = "trace_packs"
    __table_args__ = (UniqueConstraint("fleet", "content_hash"),)

    id: Mapped[str] = mapped_column(String(ID_LENGTH), primary_key=True)
    fleet: Mapped[str] = mapped_column(ForeignKey("fleets.name"))
    name: Mapped[str] = mapped_column(String(NAME_LENGTH))
    origin: Mapped[str] = mapped_column(String(32))
    n_requests: Mapped[int]
    has_decode: Mapped[bool]
    size_bytes: Mapped[int]
    content_hash: Mapped[str] = mapped_column(String(HASH_LENGTH))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    created_by: Mapped[str] = mapped_column(String(NAME_LENGTH))


class TracePackBlobRow(Table):
    """The zlib-compressed safetensors bytes of a trace pack."""

    __tablename__ = "trace_pack_blobs"

    trace_pack_id: Mapped[str] = mapped_column(ForeignKey("trace_packs.id"), primary_key=True)
    data: Mapped[bytes] = mapped_column(LargeBinary)


class CalibrationRunRow(Table):
    """One calibration as a job row; `epoch` fences off the writes of a holder that lost its lease."""

    __tablename__ = "calibration_runs"
    __table_args__ = (Index(None, "state"), Index(None, "fleet", "created_at"))

    id: Mapped[str] = mapped_column(String(ID_LENGTH), primary_key=True)
    fleet: Mapped[str] = mapped_column(ForeignKey("fleets.name"))
    state: Mapped[str] = mapped_column(String(16))
    stage: Mapped[str | None] = mapped_column(String(32))
    progress_share: Mapped[float]
    origin: Mapped[str] = mapped_column(String(32))
    trace_pack_id: Mapped[str | None] = mapped_column(ForeignKey("trace_packs.id"))
    n_live_requests: Mapped[int | None]
    live_since: Mapped[datetime | None] = mapped_column(UtcDateTime)
    n_clusters: Mapped[int]
    transform: Mapped[str] = mapped_column(String(32))
    seed: Mapped[int]
    version_id: Mapped[str | None] = mapped_column(String(ID_LENGTH))
    error: Mapped[str | None] = mapped_column(Text)
    actor: Mapped[str] = mapped_column(String(NAME_LENGTH))
    reason: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    epoch: Mapped[int]
    n_attempts: Mapped[int]
    is_cancel_requested: Mapped[bool]
    heartbeat_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class CalibrationReportRow(Table):
    """The report of a calibration run as JSON text."""

    __tablename__ = "calibration_reports"

    calibration_run_id: Mapped[str] = mapped_column(ForeignKey("calibration_runs.id"), primary_key=True)
    report: Mapped[str] = mapped_column(Text)


class LeaseRow(Table):
    """Who may act under a name until when; the epoch goes up with each new holder."""

    __tablename__ = "leases"

    name: Mapped[str] = mapped_column(String(NAME_LENGTH), primary_key=True)
    holder: Mapped[str] = mapped_column(String(NAME_LENGTH))
    epoch: Mapped[int]
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
