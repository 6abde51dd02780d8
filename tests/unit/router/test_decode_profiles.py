from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from eldr_runtime.count_codec import MAX_ENCODED_BYTES, ExpertCounts
from eldr_runtime.decode_profile import DecodeProfile, EncodedCounts
from eldr_runtime.model_shape import ModelShape
from eldr_runtime.router.attempts import new_attempt_id
from eldr_runtime.router.decode_profiles import MAX_EARLY, DecodeProfileJoin
from eldr_runtime.routing_event import Outcome, RoutingEvent

SHAPE = ModelShape(model="m", n_layers=1, n_experts=2, top_k=1)
COUNTS = EncodedCounts.from_counts(
    ExpertCounts(shape=SHAPE, counts=np.array([[1, 2]], dtype=np.uint32), tokens=3, covered=3)
)
EVENT = RoutingEvent(
    request_id="r-1", at=datetime(2026, 1, 31, tzinfo=UTC), arm="live", generation=1, version=None,
    prefill_worker="p", decode_worker="d", cluster=None, similarities={}, band=(), in_flight={}, reason=None,
    ttft_ms=None, tpot_ms=None, prompt_tokens=3, output_tokens=3, outcome=Outcome.COMPLETED,
)  # fmt: skip


class Join:
    def __init__(self, max_waiting: int = 10) -> None:
        self.now = 0.0
        self.sent: list[RoutingEvent] = []
        self.join = DecodeProfileJoin(
            self.sent.append, wait_seconds=5.0, max_waiting=max_waiting, now=lambda: self.now
        )


def profile(attempt_id: str) -> DecodeProfile:
    return DecodeProfile(request_id=attempt_id, worker_id="d", steps=3, counts=COUNTS)


def test_either_may_come_first() -> None:
    join = Join()
    for is_early in (True, False):
        attempt = new_attempt_id("r-1")
        if is_early:
            join.join.arrived(profile(attempt))
            join.join.wait_for(attempt, EVENT)
        else:
            join.join.wait_for(attempt, EVENT)
            assert len(join.sent) == 1
            join.join.arrived(profile(f"chatcmpl-{attempt}"))
    assert join.sent == [replace(EVENT, decode_counts=COUNTS, decode_steps=3)] * 2
    assert (join.join.n_joined, join.join.n_missing, join.join.n_unclaimed) == (2, 0, 0)


def test_an_event_waits_five_seconds() -> None:
    join = Join()
    join.join.wait_for(new_attempt_id("r-1"), EVENT)
    join.now = 4.9
    join.join.expire()
    assert join.sent == []
    join.now = 5.0
    join.join.expire()
    assert join.sent == [EVENT]
    assert join.join.n_missing == 1


def test_a_profile_nobody_asks_for_is_forgotten() -> None:
    join = Join()
    attempt = new_attempt_id("r-1")
    join.join.arrived(profile(attempt))
    join.join.arrived(profile("made-up"))
    join.now = 5.0
    join.join.expire()
    assert join.join.n_unclaimed == 2
    join.join.wait_for(attempt, EVENT)
    assert join.sent == []


def test_a_second_profile_changes_nothing() -> None:
    join = Join()
    attempt = new_attempt_id("r-1")
    join.join.wait_for(attempt, EVENT)
    join.join.arrived(profile(attempt))
    join.join.arrived(profile(attempt))
    assert len(join.sent) == 1


def test_what_waits_is_bounded() -> None:
    join = Join(max_waiting=1)
    join.join.wait_for(new_attempt_id("r-1"), EVENT)
    join.join.wait_for(new_attempt_id("r-2"), EVENT)
    assert len(join.sent) == 1
    for _ in range(MAX_EARLY + 1):
        join.join.arrived(profile(new_attempt_id("other")))
    assert join.join.n_unclaimed == 1


def test_a_profile_that_is_too_large_is_not_kept() -> None:
    join = Join()
    huge = replace(COUNTS, counts="A" * (MAX_ENCODED_BYTES + 1))
    join.join.arrived(replace(profile(new_attempt_id("r-1")), counts=huge))
    assert join.join.n_unclaimed == 1


def test_giving_up_sends_everything() -> None:
    join = Join()
    join.join.wait_for(new_attempt_id("r-1"), EVENT)
    join.join.give_up()
    assert join.sent == [EVENT]
