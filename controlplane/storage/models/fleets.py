"""Fleets, their workers and routers, and the generations of their routing config."""

from datetime import datetime

from sqlalchemy import JSON, ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from controlplane.storage.models.metadata import NAME_LENGTH, Table, UtcDateTime


class FleetRow(Table):
    """One fleet; `generation` is the current generation of its routing config, locked to go up."""

    __tablename__ = "fleets"

    name: Mapped[str] = mapped_column(String(NAME_LENGTH), primary_key=True)
    model: Mapped[str] = mapped_column(String(256))
    n_layers: Mapped[int]
    n_experts: Mapped[int]
    top_k: Mapped[int]
    gpu: Mapped[str] = mapped_column(String(NAME_LENGTH))
    latency_preset: Mapped[str | None] = mapped_column(String(NAME_LENGTH))
    kv_block_size_tokens: Mapped[int]
    decode_profile_share: Mapped[float]
    signature_sample_share: Mapped[float]
    metrics_window_seconds: Mapped[float]
    retention_days: Mapped[int]
    is_simulated: Mapped[bool]
    revision: Mapped[int]
    generation: Mapped[int]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class RoutingGenerationRow(Table):
    """One generation of a fleet's routing config: since when, and what made it."""

    __tablename__ = "routing_generations"

    fleet: Mapped[str] = mapped_column(ForeignKey("fleets.name"), primary_key=True)
    generation: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at: Mapped[datetime] = mapped_column(UtcDateTime)
    cause: Mapped[str] = mapped_column(String(256))


class WorkerRow(Table):
    """One worker as last reported; `is_drained` is the operator's wish, which outranks the report."""

    __tablename__ = "workers"
    __table_args__ = (Index(None, "lease_expires_at"),)

    fleet: Mapped[str] = mapped_column(ForeignKey("fleets.name"), primary_key=True)
    worker_id: Mapped[str] = mapped_column(String(NAME_LENGTH), primary_key=True)
    role: Mapped[str] = mapped_column(String(16))
    url: Mapped[str] = mapped_column(String(512))
    engine: Mapped[str] = mapped_column(String(64))
    engine_version: Mapped[str] = mapped_column(String(64))
    plugin_version: Mapped[str | None] = mapped_column(String(64))
    model: Mapped[str] = mapped_column(String(256))
    kv_connector: Mapped[str | None] = mapped_column(String(64))
    transfer_mode: Mapped[str | None] = mapped_column(String(16))
    self_test: Mapped[str] = mapped_column(String(16))
    reported_state: Mapped[str] = mapped_column(String(16))
    state: Mapped[str] = mapped_column(String(16))
    is_drained: Mapped[bool]
    capacity: Mapped[int]
    joined_at: Mapped[datetime] = mapped_column(UtcDateTime)
    last_seen_at: Mapped[datetime] = mapped_column(UtcDateTime)
    lease_expires_at: Mapped[datetime] = mapped_column(UtcDateTime)


class RouterRow(Table):
    """One router's last acknowledgement."""

    __tablename__ = "routers"

    fleet: Mapped[str] = mapped_column(ForeignKey("fleets.name"), primary_key=True)
    router_id: Mapped[str] = mapped_column(String(NAME_LENGTH), primary_key=True)
    url: Mapped[str | None] = mapped_column(String(512))
    generation_applied: Mapped[int | None]
    config_source: Mapped[str] = mapped_column(String(32))
    in_flight: Mapped[dict[str, int]] = mapped_column(JSON)
    dropped_events: Mapped[int]
    versions: Mapped[dict[str, str]] = mapped_column(JSON)
    last_seen_at: Mapped[datetime] = mapped_column(UtcDateTime)
