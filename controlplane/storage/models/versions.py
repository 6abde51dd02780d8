"""Centroid versions with their artifacts, activations, and revisions of the routing settings."""

from datetime import datetime

from sqlalchemy import JSON, ForeignKey, Index, LargeBinary, String, Text, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from controlplane.storage.models.metadata import HASH_LENGTH, ID_LENGTH, NAME_LENGTH, Table, UtcDateTime


class ArtifactRow(Table):
    """The safetensors bytes of a version, by their content hash."""

    __tablename__ = "artifacts"

    content_hash: Mapped[str] = mapped_column(String(HASH_LENGTH), primary_key=True)
    data: Mapped[bytes] = mapped_column(LargeBinary)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class VersionRow(Table):
    """One version; only `state` and `gate` (comparisons made later) ever change."""

    __tablename__ = "versions"
    __table_args__ = (
        UniqueConstraint("fleet", "number"),
        UniqueConstraint("fleet", "content_hash"),
        Index(
            "uq_versions_active",
            "fleet",
            unique=True,
            sqlite_where=text("state = 'active'"),
            postgresql_where=text("state = 'active'"),
        ),
    )

    id: Mapped[str] = mapped_column(String(ID_LENGTH), primary_key=True)
    fleet: Mapped[str] = mapped_column(ForeignKey("fleets.name"))
    number: Mapped[int]
    content_hash: Mapped[str] = mapped_column(ForeignKey("artifacts.content_hash"))
    parent_hash: Mapped[str | None] = mapped_column(String(HASH_LENGTH))
    origin: Mapped[str] = mapped_column(String(32))
    state: Mapped[str] = mapped_column(String(16))
    transform: Mapped[str] = mapped_column(String(32))
    n_centroids: Mapped[int]
    n_layers_kept: Mapped[int]
    n_requests: Mapped[int]
    held_out_percent: Mapped[float | None]
    rho: Mapped[float | None]
    metrics: Mapped[dict[str, float]] = mapped_column(JSON)
    gate: Mapped[str] = mapped_column(Text)
    calibration_run_id: Mapped[str | None] = mapped_column(ForeignKey("calibration_runs.id"))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    created_by: Mapped[str] = mapped_column(String(NAME_LENGTH))


class VersionReferenceRow(Table):
    """What live traffic is compared with under a version, as safetensors: projection, drift reference."""

    __tablename__ = "version_references"

    version_id: Mapped[str] = mapped_column(ForeignKey("versions.id"), primary_key=True)
    projection: Mapped[bytes | None] = mapped_column(LargeBinary)
    drift: Mapped[bytes | None] = mapped_column(LargeBinary)


class ActivationRow(Table):
    """Which version was live from `at` until `until`; the open one has no `until`."""

    __tablename__ = "activations"
    __table_args__ = (
        Index(None, "fleet", "at"),
        Index(
            "uq_activations_open",
            "fleet",
            unique=True,
            sqlite_where=text("until IS NULL"),
            postgresql_where=text("until IS NULL"),
        ),
    )

    id: Mapped[str] = mapped_column(String(ID_LENGTH), primary_key=True)
    fleet: Mapped[str] = mapped_column(ForeignKey("fleets.name"))
    kind: Mapped[str] = mapped_column(String(16))
    version_id: Mapped[str] = mapped_column(ForeignKey("versions.id"))
    actor: Mapped[str] = mapped_column(String(NAME_LENGTH))
    reason: Mapped[str] = mapped_column(Text)
    is_override: Mapped[bool]
    generation: Mapped[int]
    at: Mapped[datetime] = mapped_column(UtcDateTime)
    until: Mapped[datetime | None] = mapped_column(UtcDateTime)


class SettingsRevisionRow(Table):
    """One revision of a fleet's routing settings; the highest is live."""

    __tablename__ = "settings_revisions"
    __table_args__ = (Index(None, "revert_at"),)

    fleet: Mapped[str] = mapped_column(ForeignKey("fleets.name"), primary_key=True)
    revision: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    generation: Mapped[int]
    policy: Mapped[str] = mapped_column(String(64))
    tau: Mapped[float]
    load_cap: Mapped[float | None]
    control_share: Mapped[float]
    changed_at: Mapped[datetime] = mapped_column(UtcDateTime)
    changed_by: Mapped[str] = mapped_column(String(NAME_LENGTH))
    reason: Mapped[str] = mapped_column(Text)
    revert_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    revert_to: Mapped[int | None]
