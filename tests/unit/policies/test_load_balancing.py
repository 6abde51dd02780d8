from collections import Counter

import numpy as np

from eldr_runtime.policies.choice import Choice, PolicyName, PolicySettings, Reason, RoutingRequest
from eldr_runtime.policies.load_balancing import least_loaded
from eldr_runtime.policies.registry import build_policy
from eldr_runtime.worker_load import PoolView

ANY = RoutingRequest()


def choices(name: PolicyName, in_flight: list[int], n: int, *, n_routed: int = 0) -> list[Choice]:
    policy = build_policy(PolicySettings(policy=name))
    rng = np.random.default_rng(3)
    return [
        policy.choose(
            ANY,
            PoolView(
                worker_ids=tuple(f"w{i}" for i in range(len(in_flight))),
                in_flight=np.array(in_flight, dtype=np.int64),
                n_routed=n_routed + turn,
            ),
            rng,
        )
        for turn in range(n)
    ]


def test_least_loaded_by_hand() -> None:
    assert least_loaded([1, 3], [0, 5, 0, 4], rng=None) == 3
    assert least_loaded([1, 3], [0, 5, 0, 5], rng=None) == 1
    assert least_loaded([1, 3], [0, 5, 0, 4], rng=np.random.default_rng(0)) == 3


def test_round_robin_takes_turns_whatever_the_load() -> None:
    turns = choices(PolicyName.ROUND_ROBIN, [9, 0, 0], 6, n_routed=5)
    assert [turn.index for turn in turns] == [2, 0, 1, 2, 0, 1]
    assert {turn.reason for turn in turns} == {Reason.TURN}


def test_random_draws_all_workers_about_equally() -> None:
    drawn = Counter(choice.index for choice in choices(PolicyName.RANDOM, [9, 0, 0], 3000))
    assert all(abs(drawn[worker] - 1000) < 130 for worker in range(3))  # 5 standard deviations of 26


def test_join_shortest_queue_draws_among_ties_only() -> None:
    joined = choices(PolicyName.JOIN_SHORTEST_QUEUE, [1, 0, 0, 2], 60)
    assert {choice.index for choice in joined} == {1, 2}
    assert joined[0].band == (0, 1, 2, 3)


def test_power_of_two_takes_the_less_loaded_of_two_distinct_workers() -> None:
    drawn = choices(PolicyName.POWER_OF_TWO_CHOICES, [3, 2, 1], 300)
    for choice in drawn:
        assert len(set(choice.band)) == 2
        assert choice.index == max(choice.band)  # loads fall with the index
    # Pairs {0,1}, {0,2}, {1,2} are equally likely: worker 1 wins one third, worker 2 two thirds, 0 none.
    won = Counter(choice.index for choice in drawn)
    assert won[0] == 0
    assert abs(won[1] - 100) < 42  # 5 standard deviations of 8.2
