import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eldr_runtime.expert_use import expected_union
from eldr_runtime.latency_model import LatencyModel
from eldr_runtime.simulation import decode_worker
from eldr_runtime.simulation.decode_worker import DecodeWorker, RequestLog, RequestTable

N_LAYERS, N_EXPERTS = 2, 6
MODEL = LatencyModel(t0_ms=5.0, per_expert_ms=1.0, per_request_ms=0.5, per_kv_token_ms=0.01)


def table(p, prompt_tokens, output_tokens):
    return RequestTable(
        profile_of=list(range(len(p))),
        prompt_tokens=list(prompt_tokens),
        output_tokens=list(output_tokens),
        not_used=np.maximum(1 - p, np.float32(1e-6)).reshape(len(p), -1),
        n_layers=p.shape[1],
        n_experts=p.shape[2],
    )


def serve(requests, ready_ms):
    """Drive one worker through all requests; returns the log and the unions seen with their members."""
    log = RequestLog.empty(len(ready_ms))
    worker = DecodeWorker(requests, MODEL, log)
    coming = sorted(range(len(ready_ms)), key=lambda request: ready_ms[request])
    unions = []
    while coming or worker.next_ms < math.inf:
        if coming and ready_ms[coming[0]] <= worker.next_ms:
            request = coming.pop(0)
            worker.ready(request, ready_ms[request])
        else:
            worker.reach_boundary()
            unions.append((worker.members, worker.union))
    return log, unions


def step_by_step(p, prompt_tokens, output_tokens, ready_ms):
    """Reference: one step at a time, the union computed afresh in each."""
    n = len(ready_ms)
    first, last = np.full(n, np.nan), np.full(n, np.nan)
    batch_sum, union_sum = np.zeros(n), np.zeros(n)
    made, inside, waiting = [0] * n, [], set(range(n))
    now = min(ready_ms)
    while inside or waiting:
        inside += sorted(request for request in waiting if ready_ms[request] <= now)
        waiting -= set(inside)
        if not inside:
            now = min(ready_ms[request] for request in waiting)
            continue
        union = expected_union(p[inside])
        kv_tokens = sum(prompt_tokens[request] + made[request] for request in inside)
        now += MODEL.step_ms(union, float(len(inside)), float(kv_tokens))
        for request in inside:
            made[request] += 1
            batch_sum[request] += len(inside)
            union_sum[request] += union
            if made[request] == 1:
                first[request] = now
            if made[request] == output_tokens[request]:
                last[request] = now
        inside = [request for request in inside if made[request] < output_tokens[request]]
    return first, last, batch_sum, union_sum


def test_two_requests_by_hand():
    # one layer of two experts; a picks expert 0 surely enough (p 0.5), b expert 1 (p 0.5): unions 0.5 and 1.0
    p = np.array([[[0.5, 0.0]], [[0.0, 0.5]]], np.float32)
    log, _ = serve(table(p, [100, 200], [3, 1]), [10.0, 12.0])
    # a alone: 5 + 0.5 + 0.5 + 0.01 * 100 = 7.0 -> first token at 17, where b joins
    # both: 5 + 1 + 1 + 0.01 * (101 + 200) = 10.01 -> 27.01, b done; a alone: 6 + 0.01 * 102 = 7.02 -> 34.03
    assert log.first_token_ms == pytest.approx([17.0, 27.01])
    assert log.last_token_ms == pytest.approx([34.03, 27.01])
    assert log.batch_sum == pytest.approx([4.0, 2.0])
    assert log.union_sum == pytest.approx([0.5 + 1.0 + 0.5, 1.0])


@given(
    st.lists(
        st.tuples(st.integers(1, 300), st.integers(1, 40), st.floats(0, 800), st.integers(0, 4)),
        min_size=1,
        max_size=12,
    ),
    st.integers(0, 1000),
)
def test_jumps_agree_with_single_steps(rows, seed):
    prompts, outputs, ready_ms, _ = (list(column) for column in zip(*rows, strict=True))
    p = np.random.default_rng(seed).uniform(0, 0.95, (len(rows), N_LAYERS, N_EXPERTS)).astype(np.float32)
    log, unions = serve(table(p, prompts, outputs), ready_ms)
    first, last, batch_sum, union_sum = step_by_step(p, prompts, outputs, ready_ms)
    assert log.first_token_ms == pytest.approx(first, rel=1e-4)
    assert log.last_token_ms == pytest.approx(last, rel=1e-4)
    assert log.batch_sum == pytest.approx(batch_sum)
    assert log.union_sum == pytest.approx(union_sum, rel=1e-3)
    for members, union in unions:
        naive = expected_union(p[list(members)]) if members else 0.0
        assert union == pytest.approx(naive, abs=1e-4)


def test_the_union_stays_right_over_thousands_of_joins_and_leaves():
    rng = np.random.default_rng(4)
    n = 6 * decode_worker.RECOMPUTE_EVERY
    p = np.minimum(rng.uniform(0, 2, (n, N_LAYERS, N_EXPERTS)), 1.0).astype(np.float32)
    requests = table(p, [50] * n, rng.integers(5, 60, n).tolist())
    _, unions = serve(requests, np.cumsum(rng.exponential(60.0, n)).tolist())
    assert len(unions) > n
    for members, union in unions[::7]:
        assert union == pytest.approx(expected_union(p[list(members)]) if members else 0.0, abs=1e-3)


def test_a_request_that_arrives_at_a_step_s_end_joins_there():
    p = np.full((2, 1, 2), 0.5, np.float32)
    requests = table(p, [100, 100], [5, 5])
    log = RequestLog.empty(2)
    worker = DecodeWorker(requests, MODEL, log)
    worker.ready(0, 0.0)
    worker.reach_boundary()
    first_end = log.first_token_ms[0]
    assert worker.ready(1, float(first_end))
    assert worker.next_ms == first_end


def test_a_request_that_waits_for_a_known_boundary_moves_nothing():
    p = np.full((2, 1, 2), 0.5, np.float32)
    worker = DecodeWorker(table(p, [100, 100], [1, 5]), MODEL, RequestLog.empty(2))
    worker.ready(0, 0.0)
    worker.reach_boundary()
    end = worker.next_ms
    assert not worker.ready(1, end / 2)
    assert worker.next_ms == end
    assert worker.reach_boundary() == [0]
    assert worker.members == (1,)
