from dataclasses import replace
from datetime import UTC, datetime

from eldr_runtime.metrics_blob import MetricsBlob
from eldr_runtime.router.outbox import EVENTS_A_BATCH, Outbox
from eldr_runtime.routing_event import Outcome, RoutingEvent

AT = datetime(2026, 1, 31, 12, 0, 10, tzinfo=UTC)
BLOB = MetricsBlob(router_id="r", window_start=AT, experiment_window=1, sequence=0, is_washout=False, rows=())
EVENT = RoutingEvent(
    request_id="0", at=AT, arm="live", generation=1, version=None, prefill_worker=None, decode_worker=None,
    cluster=None, similarities={}, band=(), in_flight={}, reason=None, ttft_ms=None, tpot_ms=None,
    prompt_tokens=0, output_tokens=0, outcome=Outcome.REFUSED,
)  # fmt: skip


def event(n: int) -> RoutingEvent:
    return replace(EVENT, request_id=str(n))


def outbox(max_events: int = 1000) -> tuple[Outbox, list[tuple[str, int]]]:
    dropped: list[tuple[str, int]] = []
    box = Outbox(
        router_id="r",
        max_events=max_events,
        keep_seconds=600.0,
        on_dropped=lambda kind, n: dropped.append((kind, n)),
    )
    return box, dropped


def test_what_was_not_delivered_comes_again() -> None:
    box, _ = outbox()
    box.add_event(event(1))
    first = box.next_batch()
    assert first == box.next_batch()
    assert first is not None
    box.delivered(first)
    assert box.next_batch() is None


def test_batches_are_bounded_and_in_order() -> None:
    box, _ = outbox()
    for n in range(EVENTS_A_BATCH + 1):
        box.add_event(event(n))
    first = box.next_batch()
    assert first is not None
    assert [each.request_id for each in first.events] == [str(n) for n in range(EVENTS_A_BATCH)]
    box.delivered(first)
    second = box.next_batch()
    assert second is not None
    assert [each.request_id for each in second.events] == [str(EVENTS_A_BATCH)]


def test_the_oldest_event_makes_room_and_is_counted() -> None:
    box, dropped = outbox(max_events=2)
    for n in range(3):
        box.add_event(event(n))
    batch = box.next_batch()
    assert batch is not None
    assert [each.request_id for each in batch.events] == ["1", "2"]
    assert (box.n_dropped_events, dropped) == (1, [("events", 1)])


def test_what_came_in_while_a_batch_was_under_way_stays() -> None:
    box, _ = outbox(max_events=2)
    box.add_event(event(0))
    box.add_event(event(1))
    under_way = box.next_batch()
    box.add_event(event(2))
    assert under_way is not None
    box.delivered(under_way)
    rest = box.next_batch()
    assert rest is not None
    assert [each.request_id for each in rest.events] == ["2"]


def test_blobs_that_are_too_late_are_dropped_and_counted() -> None:
    box, dropped = outbox()
    now = AT.timestamp()
    box.add_blobs((BLOB, replace(BLOB, sequence=1)), now + 600)
    assert box.n_waiting == 2
    box.add_blobs((), now + 601)
    assert (box.n_waiting, box.n_dropped_blobs) == (0, 2)
    assert dropped == [("blobs", 1), ("blobs", 1)]


def test_a_batch_nobody_will_ever_take_is_dropped_and_counted() -> None:
    box, dropped = outbox()
    box.add_event(event(1))
    box.add_blobs((BLOB,), AT.timestamp())
    batch = box.next_batch()
    assert batch is not None
    box.refused(batch, "status 422")
    assert box.next_batch() is None
    assert dropped == [("events", 1), ("blobs", 1)]
