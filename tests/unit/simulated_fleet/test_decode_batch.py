from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eldr_runtime.expert_use import expected_union, log_not_used
from eldr_runtime.latency_model import LatencyModel
from eldr_runtime.simulated_fleet.decode_batch import DecodeBatch, DecodeSlot, next_border

# two layers of two experts: alone the request's union is (0.5 + 1 + 1 + 0) / 2 = 1.25
P = np.array([[0.5, 1.0], [1.0, 0.0]], dtype=np.float32)
MODEL = LatencyModel(t0_ms=10.0, per_expert_ms=4.0, per_request_ms=1.0, per_kv_token_ms=0.5)


def make_batch(max_running: int = 8, model: LatencyModel = MODEL) -> DecodeBatch:
    return DecodeBatch(n_layers=2, n_experts=2, latency=model, max_running=max_running)


def make_slot(
    ready: float = 0.0, *, prompt: int = 2, tokens: int = 3, interval: int = 1, calls: list[int] | None = None
) -> DecodeSlot:
    seen = calls if calls is not None else []
    slot = DecodeSlot(
        ready_at_seconds=ready,
        log_unused=log_not_used(P),
        prompt_tokens=prompt,
        max_tokens=tokens,
        interval_tokens=interval,
        on_tokens=lambda: seen.append(slot.n_tokens),
    )
    return slot


def test_step_takes_what_the_latency_model_says() -> None:
    batch = make_batch()
    slot = make_slot(1.0)
    batch.submit(slot)
    assert batch.next_event_seconds() == 1.0
    batch.advance(1.0)
    # 10 + 4 * 1.25 + 1 * 1 + 0.5 * 2 tokens of prompt = 17 ms
    assert batch.next_event_seconds() == pytest.approx(1.017, abs=1e-8)
    assert batch.expected_union == pytest.approx(1.25, abs=1e-5)
    batch.advance(1.0171)
    # one more KV token: 17.5 ms from the end of the step, not from the late call
    assert batch.next_event_seconds() == pytest.approx(1.0345, abs=1e-8)
    assert slot.n_tokens == 1


def test_two_requests_share_their_steps() -> None:
    batch = make_batch()
    batch.submit(make_slot())
    batch.submit(make_slot())
    batch.advance(0.0)
    # union (1 - 0.25 + 1 + 1 + 0) / 2 = 1.375: 10 + 5.5 + 2 + 0.5 * 4 = 19.5 ms
    assert batch.next_event_seconds() == pytest.approx(0.0195, abs=1e-7)


def test_tokens_are_never_out_before_their_step_ends() -> None:
    batch, calls = make_batch(), []
    slot = make_slot(calls=calls)
    batch.submit(slot)
    batch.advance(0.0169)
    assert calls == []
    batch.advance(0.0171)
    assert calls == [1]


def test_late_caller_catches_up_without_drift() -> None:
    batch, calls = make_batch(), []
    batch.submit(make_slot(tokens=3, calls=calls))
    batch.advance(10.0)
    assert calls == [1, 2, 3]
    assert batch.n_running == 0
    assert batch.next_event_seconds() is None


def test_request_joins_at_the_border_after_it_is_ready_even_when_the_caller_is_late() -> None:
    batch = make_batch()
    first, second = make_slot(0.0, tokens=50), make_slot(0.020, tokens=50)
    batch.submit(first)
    batch.submit(second)
    batch.advance(0.0340)  # the step 17 .. 34.5 ms has not ended: the second waits for its end
    assert (batch.n_running, batch.n_waiting) == (1, 1)
    batch.advance(0.0346)
    assert (batch.n_running, batch.n_waiting) == (2, 0)
    assert second.n_tokens == 0


def test_chunk_borders_are_the_first_token_and_then_every_interval() -> None:
    batch, calls = make_batch(), []
    batch.submit(make_slot(tokens=10, interval=4, calls=calls))
    batch.advance(10.0)
    assert calls == [1, 5, 9, 10]


def test_full_batch_makes_requests_wait_their_turn() -> None:
    batch = make_batch(max_running=1)
    batch.submit(make_slot(0.0, tokens=1))
    batch.submit(make_slot(0.0, tokens=1))
    batch.advance(0.0)
    assert (batch.n_running, batch.n_waiting) == (1, 1)
    batch.advance(0.0171)
    assert (batch.n_running, batch.n_waiting) == (1, 0)


def test_removed_request_frees_its_place_and_gets_no_more_tokens() -> None:
    batch, calls = make_batch(), []
    slot, waiting = make_slot(tokens=5, calls=calls), make_slot(99.0)
    batch.submit(slot)
    batch.submit(waiting)
    batch.advance(0.0171)
    batch.remove(slot)
    batch.remove(waiting)
    batch.remove(waiting)
    assert (batch.n_running, batch.n_waiting, batch.kv_tokens) == (0, 0, 0)
    batch.advance(10.0)
    assert calls == [1]
    assert batch.next_event_seconds() is None


def test_counters_sum_over_steps() -> None:
    batch = make_batch()
    batch.submit(make_slot(tokens=3))
    batch.submit(make_slot(tokens=1))
    batch.advance(10.0)
    counters = batch.counters()
    assert (counters.n_steps, counters.batch_sum, counters.n_tokens) == (3, 4, 4)
    # layer 0: 1.75 in the step of both, then 1.5 twice; layer 1: always 1
    np.testing.assert_allclose(counters.distinct_experts, [4.75, 3.0], atol=1e-4)


def test_slow_factor_stretches_the_steps_that_begin_after_it() -> None:
    batch = make_batch()
    batch.submit(make_slot())
    batch.slow_factor = 2.0
    batch.advance(0.0)
    assert batch.next_event_seconds() == pytest.approx(0.034, abs=1e-7)


def test_postponed_batch_takes_the_rest_of_its_step_later() -> None:
    batch = make_batch()
    batch.submit(make_slot())
    batch.advance(0.0)
    batch.postpone(5.010, 5.0)
    assert batch.next_event_seconds() == pytest.approx(5.017, abs=1e-7)
    idle = make_batch()
    idle.submit(make_slot(0.0))
    idle.postpone(5.0, 5.0)
    assert idle.next_event_seconds() == 5.0


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_any_history_leaves_the_union_of_who_is_there(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    batch, members, now = make_batch(model=MODEL), {}, 0.0
    for _ in range(data.draw(st.integers(1, 40))):
        if members and data.draw(st.booleans()):
            slot = data.draw(st.sampled_from(sorted(members, key=id)))
            batch.remove(slot)
            del members[slot]
        else:
            p = rng.random((2, 2)).astype(np.float32)
            slot = make_slot(now, tokens=10_000)
            slot.log_unused = log_not_used(p)
            batch.submit(slot)
            members[slot] = p
        now += 0.05
        batch.advance(now)
    assert batch.n_running <= len(members) <= 8 + batch.n_waiting
    now += 0.1
    batch.advance(now)
    running = [p for slot, p in members.items() if slot.admitted_at_step >= 0]
    expected = expected_union(np.stack(running).astype(np.float64)) if running else 0.0
    assert batch.expected_union == pytest.approx(expected, abs=1e-4)


@given(interval=st.integers(1, 9), tokens=st.integers(1, 60))
def test_borders_end_at_the_last_token(interval: int, tokens: int) -> None:
    borders = [0]
    while borders[-1] < tokens:
        borders.append(next_border(borders[-1], interval, tokens))
    assert borders[1] == 1
    assert borders[-1] == tokens
    assert {b - a for a, b in pairwise(borders[1:-1])} <= {interval}
