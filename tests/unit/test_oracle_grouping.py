from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eldr_runtime.array_types import Floats32
from eldr_runtime.held_out_union import union_changes
from eldr_runtime.oracle_grouping import oracle_groups


def random_use(n_requests: int, seed: int) -> Floats32:
    return np.random.default_rng(seed).random((n_requests, 2, 4)).astype(np.float32) ** 2


def test_finds_the_two_kinds_of_request() -> None:
    # Even requests use expert 0, odd ones expert 1: any batch of a group should load one expert of two.
    p = np.zeros((20, 1, 2), dtype=np.float32)
    p[::2, 0, 0] = p[1::2, 0, 1] = 1.0
    groups = oracle_groups(p, 2, 4, seed=0)
    assert len(set(groups[::2])) == len(set(groups[1::2])) == 1
    assert groups[0] != groups[1]


@given(st.integers(2, 4), st.integers(0, 20))
@settings(deadline=None, max_examples=15)
def test_groups_stay_of_equal_size_and_are_seeded(n_groups: int, seed: int) -> None:
    p = random_use(22, seed)
    groups = oracle_groups(p, n_groups, 3, seed=seed, n_swap_trials=100)
    assert np.bincount(groups, minlength=n_groups).max() <= -(-22 // n_groups)
    np.testing.assert_array_equal(groups, oracle_groups(p, n_groups, 3, seed=seed, n_swap_trials=100))


def test_is_near_the_best_of_all_halves() -> None:
    p = random_use(8, 0)
    changes = []
    for half in combinations(range(1, 8), 3):
        groups = np.ones(8, dtype=np.int64)
        groups[[0, *half]] = 0
        changes.append(union_changes(p, groups, [2])[0].percent or 0.0)
    found = union_changes(p, oracle_groups(p, 2, 2, seed=0), [2])[0].percent
    assert found == pytest.approx(min(changes), abs=0.5)


def test_swaps_never_make_it_worse() -> None:
    p = random_use(40, 3)
    without = union_changes(p, oracle_groups(p, 4, 4, seed=0, n_swap_trials=0), [4])[0].percent
    swapped = union_changes(p, oracle_groups(p, 4, 4, seed=0), [4])[0].percent
    assert without is not None
    assert swapped is not None
    assert swapped <= without + 0.1
