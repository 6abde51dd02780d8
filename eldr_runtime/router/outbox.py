"""Telemetry on its way out: bounded queues, batches, and a count of what had to be dropped."""

import logging
from collections import deque
from collections.abc import Callable
from itertools import islice

from eldr_runtime.metrics_blob import MetricsBlob
from eldr_runtime.routing_event import RoutingEvent
from eldr_runtime.telemetry_batch import TelemetryBatch

# An event with both counts is about 25 kB as JSON, a blob with its histograms about as much.
EVENTS_A_BATCH = 100
BLOBS_A_BATCH = 50
_log = logging.getLogger(__name__)


class Outbox:
    """Keeps events and blobs until they are delivered.

    Parameters
    ----------
    max_events
        Beyond it the oldest event is dropped.
    keep_seconds
        Blobs older than that are dropped; the control plane takes none that are later.
    on_dropped
        Told the kind and the number of what is dropped.

    Attributes
    ----------
    n_dropped_events, n_dropped_blobs
        Since the start.
    """

    def __init__(
        self, *, router_id: str, max_events: int, keep_seconds: float, on_dropped: Callable[[str, int], None]
    ) -> None:
        self._router_id = router_id
        self._max_events = max_events
        self._keep_seconds = keep_seconds
        self._on_dropped = on_dropped
        self._events: deque[RoutingEvent] = deque()
        self._blobs: deque[MetricsBlob] = deque()
        self.n_dropped_events = 0
        self.n_dropped_blobs = 0

    @property
    def n_waiting(self) -> int:
        """Events and blobs not yet delivered."""
        return len(self._events) + len(self._blobs)

    def add_event(self, event: RoutingEvent) -> None:
        """Take an event."""
        self._events.append(event)
        if len(self._events) > self._max_events:
            self._events.popleft()
            self._drop_events(1)

    def add_blobs(self, blobs: tuple[MetricsBlob, ...], utc_seconds: float) -> None:
        """Take blobs, and drop those that have become too old to be of use."""
        self._blobs += blobs
        while self._blobs and self._blobs[0].window_start.timestamp() < utc_seconds - self._keep_seconds:
            self._blobs.popleft()
            self._drop_blobs(1)

    def next_batch(self) -> TelemetryBatch | None:
        """Return what goes out next, None if nothing waits; it stays here until `delivered` or `refused`."""
        if not self.n_waiting:
            return None
        return TelemetryBatch(
            router_id=self._router_id,
            events=tuple(islice(self._events, EVENTS_A_BATCH)),
            blobs=tuple(islice(self._blobs, BLOBS_A_BATCH)),
        )

    def delivered(self, batch: TelemetryBatch) -> None:
        """Forget what was delivered; what was dropped meanwhile is gone already."""
        self._forget(batch)

    def refused(self, batch: TelemetryBatch, why: str) -> None:
        """Drop a batch that no repetition would get accepted."""
        _log.error("telemetry was refused: %s", why)
        n_events, n_blobs = self._forget(batch)
        self._drop_events(n_events)
        self._drop_blobs(n_blobs)

    def _forget(self, batch: TelemetryBatch) -> tuple[int, int]:
        n_events = _pop_same(self._events, batch.events)
        return n_events, _pop_same(self._blobs, batch.blobs)

    def _drop_events(self, n: int) -> None:
        self.n_dropped_events += n
        if n:
            self._on_dropped("events", n)

    def _drop_blobs(self, n: int) -> None:
        self.n_dropped_blobs += n
        if n:
            self._on_dropped("blobs", n)


def _pop_same(queue: deque[RoutingEvent] | deque[MetricsBlob], sent: tuple[object, ...]) -> int:
    """Remove from the front what was sent, as far as it is still there."""
    ids = {id(each) for each in sent}
    n_popped = 0
    while queue and id(queue[0]) in ids:
        queue.popleft()
        n_popped += 1
    return n_popped
