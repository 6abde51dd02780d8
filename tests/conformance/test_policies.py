"""What every registered policy promises, whatever its name; a new one is tested once it is registered."""

import copy

import numpy as np
import pytest

from eldr_runtime.array_types import Floats32
from eldr_runtime.policies.choice import (
    Choice,
    PolicyName,
    PolicySettings,
    Reason,
    RoutingPolicy,
    RoutingRequest,
    TieBreak,
)
from eldr_runtime.policies.locality_band import load_limit
from eldr_runtime.policies.registry import build_policy
from eldr_runtime.worker_load import PoolView

LABEL_SHARES = {"chat": 0.5, "code": 0.3, "law": 0.15, "math": 0.05}
LABELS = (*LABEL_SHARES, "never seen", None)
N_CASES = 200

every_policy = pytest.mark.parametrize("name", list(PolicyName))


def build(name: PolicyName) -> RoutingPolicy:
    return build_policy(PolicySettings(policy=name), label_shares=LABEL_SHARES)


def draw_case(seed: int, n_workers: int | None = None) -> tuple[RoutingRequest, PoolView]:
    rng = np.random.default_rng(seed)
    n_workers = n_workers or int(rng.integers(1, 24))
    similarities: Floats32 | None = rng.uniform(-1, 1, n_workers).astype(np.float32)
    if seed % 5 == 0:
        similarities = None
    if seed % 5 == 1:
        similarities = np.zeros(n_workers, dtype=np.float32)
    pool = PoolView(
        worker_ids=tuple(f"w{i:02d}" for i in range(n_workers)),
        in_flight=rng.integers(0, 40, n_workers),
        n_routed=int(rng.integers(0, 1000)),
    )
    return RoutingRequest(similarities=similarities, label=LABELS[seed % len(LABELS)]), pool


def choose(name: PolicyName, request: RoutingRequest, pool: PoolView, seed: int = 0) -> Choice:
    return build(name).choose(request, pool, np.random.default_rng(seed))


@every_policy
def test_the_index_is_in_range_and_in_a_band_that_ascends(name: PolicyName) -> None:
    for seed in range(N_CASES):
        request, pool = draw_case(seed)
        choice = choose(name, request, pool, seed)
        assert choice.index in range(len(pool))
        assert choice.index in choice.band
        assert list(choice.band) == sorted(set(choice.band))
        assert set(choice.band) <= set(range(len(pool)))
        assert isinstance(choice.reason, Reason)


@every_policy
def test_one_seed_gives_one_sequence(name: PolicyName) -> None:
    def sequence() -> list[Choice]:
        policy, rng = build(name), np.random.default_rng(7)
        return [policy.choose(*draw_case(seed), rng) for seed in range(N_CASES)]

    assert sequence() == sequence()


@every_policy
def test_it_keeps_no_state_between_calls(name: PolicyName) -> None:
    policy = build(name)
    for seed in range(20):
        request, pool = draw_case(seed)
        choice = policy.choose(request, pool, np.random.default_rng(seed))
        assert choice == choose(name, request, pool, seed)


@every_policy
def test_it_never_changes_the_pool_or_the_request(name: PolicyName) -> None:
    for seed in range(20):
        request, pool = draw_case(seed)
        before = copy.deepcopy((request, pool))
        choose(name, request, pool)
        assert pool.worker_ids == before[1].worker_ids
        assert pool.in_flight.tolist() == before[1].in_flight.tolist()
        assert pool.n_routed == before[1].n_routed
        if request.similarities is not None and before[0].similarities is not None:
            assert request.similarities.tolist() == before[0].similarities.tolist()


@every_policy
def test_one_worker_takes_everything(name: PolicyName) -> None:
    for seed in range(20):
        assert choose(name, *draw_case(seed, n_workers=1)).index == 0


@every_policy
@pytest.mark.parametrize("similarities", [None, np.zeros(4, dtype=np.float32)])
def test_without_locality_it_still_chooses(name: PolicyName, similarities: Floats32 | None) -> None:
    pool = PoolView(worker_ids=("a", "b", "c", "d"), in_flight=np.array([3, 2, 0, 1]))
    choice = choose(name, RoutingRequest(similarities=similarities), pool)
    assert choice.index in range(4)
    if name in (PolicyName.ELDR, PolicyName.ELDR_CAPPED, PolicyName.JOIN_SHORTEST_QUEUE):
        assert choice.index == 2


@pytest.mark.parametrize("name", [n for n in PolicyName if build(n).tie_break is not TieBreak.POSITION])
def test_permuting_the_workers_permutes_the_choice(name: PolicyName) -> None:
    """Exactly so where neither loads nor similarities tie; those that go by position are left out."""
    for seed in range(N_CASES):
        rng = np.random.default_rng(seed)
        n_workers = int(rng.integers(1, 24))
        pool = PoolView(
            worker_ids=tuple(f"w{i:02d}" for i in range(n_workers)),
            in_flight=rng.permutation(n_workers).astype(np.int64),
        )
        similarities = rng.uniform(-1, 1, n_workers).astype(np.float32)
        order = rng.permutation(n_workers)
        label = LABELS[seed % len(LABELS)]
        turned = PoolView(
            worker_ids=tuple(pool.worker_ids[i] for i in order), in_flight=pool.in_flight[order]
        )
        choice = choose(name, RoutingRequest(similarities=similarities, label=label), pool)
        other = choose(name, RoutingRequest(similarities=similarities[order], label=label), turned)
        assert turned.worker_ids[other.index] == pool.worker_ids[choice.index]
        assert {turned.worker_ids[i] for i in other.band} == {pool.worker_ids[i] for i in choice.band}


@every_policy
def test_ties_are_settled_as_declared(name: PolicyName) -> None:
    pool = PoolView(worker_ids=("a", "b", "c"), in_flight=np.zeros(3, dtype=np.int64))
    request = RoutingRequest(similarities=np.full(3, 0.5, dtype=np.float32), label="chat")
    settled = {choose(name, request, pool, seed).index for seed in range(40)}
    match build(name).tie_break:
        case TieBreak.LOWEST_INDEX:
            assert settled == {0}
        case TieBreak.SEEDED_DRAW:
            assert settled == set(choose(name, request, pool).band)
        case TieBreak.POSITION:
            assert settled <= {0, 1, 2}


@pytest.mark.parametrize("name", [n for n in PolicyName if PolicySettings(policy=n).effective_load_cap])
def test_it_respects_its_load_cap(name: PolicyName) -> None:
    cap = PolicySettings(policy=name).effective_load_cap
    assert cap is not None
    for seed in range(N_CASES):
        request, pool = draw_case(seed)
        index = choose(name, request, pool, seed).index
        assert pool.in_flight[index] + 1 <= load_limit(pool.in_flight.tolist(), cap)
