"""API keys, audit events and the answers kept for idempotency keys."""

from datetime import datetime

from sqlalchemy import JSON, Index, LargeBinary, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from controlplane.storage.models.metadata import HASH_LENGTH, ID_LENGTH, NAME_LENGTH, Table, UtcDateTime


class ApiKeyRow(Table):
    """One key; of its secret only the hash is kept."""

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(String(ID_LENGTH), primary_key=True)
    name: Mapped[str] = mapped_column(String(NAME_LENGTH))
    role: Mapped[str] = mapped_column(String(16))
    secret_hash: Mapped[str] = mapped_column(String(HASH_LENGTH))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    revoked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    last_used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class AuditEventRow(Table):
    """One change. Rows are only ever added: triggers refuse an update or a removal."""

    __tablename__ = "audit_events"
    __table_args__ = (Index(None, "fleet", "at"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[datetime] = mapped_column(UtcDateTime)
    fleet: Mapped[str | None] = mapped_column(String(NAME_LENGTH))
    actor: Mapped[str] = mapped_column(String(NAME_LENGTH))
    action: Mapped[str] = mapped_column(String(64))
    resource: Mapped[str] = mapped_column(String(64))
    resource_id: Mapped[str] = mapped_column(String(256))
    reason: Mapped[str] = mapped_column(Text)
    request_id: Mapped[str] = mapped_column(String(NAME_LENGTH))
    before: Mapped[str | None] = mapped_column(Text)
    after: Mapped[str | None] = mapped_column(Text)


class IdempotencyKeyRow(Table):
    """The answer to one acting request, for when it is sent again; `status` is 0 until there is one."""

    __tablename__ = "idempotency_keys"
    __table_args__ = (Index(None, "created_at"),)

    api_key_id: Mapped[str] = mapped_column(String(ID_LENGTH), primary_key=True)
    key: Mapped[str] = mapped_column(String(256), primary_key=True)
    request_hash: Mapped[str] = mapped_column(String(HASH_LENGTH))
    status: Mapped[int]
    headers: Mapped[dict[str, str]] = mapped_column(JSON)
    body: Mapped[bytes] = mapped_column(LargeBinary)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
