"""Fleets and their workers, as the API speaks of them."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from controlplane.domain.limits import check_between
from eldr_runtime.errors import InvalidValue
from eldr_runtime.latency_model import find_preset
from eldr_runtime.model_shape import ModelShape
from eldr_runtime.routing_config import WorkerState

__all__ = ["CreateFleet", "Fleet", "FleetStatus", "RouterStatus", "Worker", "WorkerLease", "WorkerState"]

FLEET_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
FLEET_NAME_LIMIT = "1 to 63 small letters, digits and hyphens, not starting with a hyphen"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """A model served by a pool of workers; everything else hangs on one."""

    name: str
    shape: ModelShape
    gpu: str
    latency_preset: str | None
    kv_block_size_tokens: int
    decode_profile_share: float
    signature_sample_share: float
    metrics_window_seconds: float
    retention_days: int
    is_simulated: bool
    revision: int
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateFleet:
    """Command: make a fleet. Shares are of requests, in [0, 1]; samples are kept for `retention_days`.

    `latency_preset` names the latency model that step times are predicted by (`eldr latency show`); without
    it the one of the same model on the same GPU is taken, if there is one.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    name: str
    shape: ModelShape
    reason: str
    gpu: str = "unknown"
    latency_preset: str | None = None
    kv_block_size_tokens: int = 16
    decode_profile_share: float = 0.01
    signature_sample_share: float = 0.01
    metrics_window_seconds: float = 10.0
    retention_days: int = 14
    is_simulated: bool = False

    def __post_init__(self) -> None:
        if not FLEET_NAME.fullmatch(self.name):
            raise InvalidValue(field="name", value=self.name, limit=FLEET_NAME_LIMIT)
        if self.latency_preset is not None:
            find_preset(self.latency_preset, field="latency_preset")
        for field in ("decode_profile_share", "signature_sample_share"):
            check_between(field, getattr(self, field), 0, 1)
        check_between("kv_block_size_tokens", self.kv_block_size_tokens, 1, 4096)
        check_between("metrics_window_seconds", self.metrics_window_seconds, 1, 60)
        check_between("retention_days", self.retention_days, 1, 3650)


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One prefill or decode worker as last reported."""

    worker_id: str
    fleet: str
    role: str
    url: str
    engine: str
    engine_version: str
    plugin_version: str | None
    model: str
    kv_connector: str | None
    transfer_mode: str | None
    self_test: str
    state: WorkerState
    capacity: int
    last_seen_at: datetime
    lease_expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLease:
    """Answer to a worker's heartbeat: how long it counts as alive, and where decode profiles go."""

    worker_id: str
    state: WorkerState
    lease_seconds: float
    heartbeat_seconds: float
    decode_profile_urls: tuple[str, ...]
    decode_profile_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterStatus:
    """What a router last acknowledged; lagging after three missed beats or an old generation."""

    router_id: str
    url: str | None
    generation_applied: int | None
    config_source: str
    is_lagging: bool
    in_flight: dict[str, int]
    dropped_events: int
    last_seen_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetStatus:
    """One look at a fleet for the Overview page."""

    fleet: Fleet
    generation: int
    routers: tuple[RouterStatus, ...]
    n_ready_prefill: int
    n_ready_decode: int
    n_lost: int
    active_version_number: int | None
    policy: str
    tau: float
    n_open_alerts: int
