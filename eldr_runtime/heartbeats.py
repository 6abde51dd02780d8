"""What routers and workers tell the control plane every two seconds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Self

from eldr_runtime.errors import InvalidMessage
from eldr_runtime.json_values import check_wire_version, message_from_json, message_to_json
from eldr_runtime.routing_config import TransferMode as TransferMode
from eldr_runtime.routing_config import WorkerRole, WorkerState, check_name, check_worker_url

HEARTBEAT_SECONDS = 2
LEASE_SECONDS = 10
MISSED_BEATS_TO_LAG = 3


class ConfigSource(StrEnum):
    """Where a router's configuration came from."""

    CONTROL_PLANE = "control-plane"
    DISK = "disk"
    NONE = "none"


class SelfTest(StrEnum):
    """Result of a worker's own check that it captures experts."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterHeartbeat:
    """One router is alive, and runs this generation.

    Parameters
    ----------
    generation_applied
        0 where none is.
    in_flight
        Decode requests in flight by worker.
    dropped_events
        Events dropped since the router started.
    versions
        Software and its version.
    url
        Where workers reach the router, to send it decode profiles; None where it does not know.
    """

    WIRE_VERSION: ClassVar[int] = 1

    v: int = WIRE_VERSION
    router_id: str
    generation_applied: int
    config_source: ConfigSource
    in_flight: Mapping[str, int]
    dropped_events: int
    versions: Mapping[str, str] = field(default_factory=dict)
    url: str | None = None

    def __post_init__(self) -> None:
        check_wire_version(self.v, self.WIRE_VERSION)
        if self.url is not None:
            check_worker_url(self.url)
        if not self.router_id:
            raise InvalidMessage(field="router_id", value=self.router_id, limit="a non-empty id")
        if self.generation_applied < 0:
            raise InvalidMessage(field="generation_applied", value=self.generation_applied, limit="0 or more")
        if self.dropped_events < 0:
            raise InvalidMessage(field="dropped_events", value=self.dropped_events, limit="0 or more")
        for worker_id, n_in_flight in self.in_flight.items():
            if n_in_flight < 0:
                raise InvalidMessage(field=f"in_flight.{worker_id}", value=n_in_flight, limit="0 or more")

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read a heartbeat from JSON text."""
        return message_from_json(cls, text)

    def to_json(self) -> str:
        """Write the heartbeat as JSON text."""
        return message_to_json(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerHeartbeat:
    """One worker is alive: its registration and its lease renewal alike.

    Parameters
    ----------
    kv_connector, transfer_mode
        How its KV cache travels; None for a worker that has none to give.
    capacity
        Requests it takes at once.
    """

    WIRE_VERSION: ClassVar[int] = 1

    v: int = WIRE_VERSION
    fleet: str
    worker_id: str
    role: WorkerRole
    url: str
    engine: str
    engine_version: str
    plugin_version: str | None
    model: str
    kv_connector: str | None
    transfer_mode: TransferMode | None
    self_test: SelfTest
    state: WorkerState
    capacity: int

    def __post_init__(self) -> None:
        check_wire_version(self.v, self.WIRE_VERSION)
        # As the routing config has it: an id that it refuses would keep every router from its next one.
        check_name("worker_id", self.worker_id)
        for name in ("fleet", "engine", "model"):
            if not getattr(self, name):
                raise InvalidMessage(field=name, value=getattr(self, name), limit="non-empty")
        check_worker_url(self.url)
        if self.state is WorkerState.LOST:
            limit = "joining, ready or draining; a lost worker does not beat"
            raise InvalidMessage(field="state", value=self.state.value, limit=limit)
        if self.capacity < 1:
            raise InvalidMessage(field="capacity", value=self.capacity, limit="at least 1")

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read a heartbeat from JSON text."""
        return message_from_json(cls, text)

    def to_json(self) -> str:
        """Write the heartbeat as JSON text."""
        return message_to_json(self)
