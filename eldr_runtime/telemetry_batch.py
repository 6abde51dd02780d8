"""What a router hands to the control plane at once: sampled events and metrics blobs."""

from dataclasses import dataclass
from typing import ClassVar, Self

from eldr_runtime.errors import InvalidMessage
from eldr_runtime.json_values import check_wire_version, message_from_json, message_to_json
from eldr_runtime.metrics_blob import MetricsBlob
from eldr_runtime.routing_event import RoutingEvent

MAX_EVENTS = 1000
MAX_BLOBS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryBatch:
    """Events and blobs of one router; either may come again, and in any order."""

    WIRE_VERSION: ClassVar[int] = 1

    v: int = WIRE_VERSION
    router_id: str
    events: tuple[RoutingEvent, ...] = ()
    blobs: tuple[MetricsBlob, ...] = ()

    def __post_init__(self) -> None:
        check_wire_version(self.v, self.WIRE_VERSION)
        if not self.router_id:
            raise InvalidMessage(field="router_id", value=self.router_id, limit="a non-empty id")
        for name, most in (("events", MAX_EVENTS), ("blobs", MAX_BLOBS)):
            n = len(getattr(self, name))
            if n > most:
                raise InvalidMessage(field=name, value=n, limit=f"at most {most}")
        for blob in self.blobs:
            if blob.router_id != self.router_id:
                raise InvalidMessage(field="blobs router_id", value=blob.router_id, limit=self.router_id)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read a batch from JSON text."""
        return message_from_json(cls, text)

    def to_json(self) -> str:
        """Write the batch as JSON text."""
        return message_to_json(self)
