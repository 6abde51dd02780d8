import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eldr_runtime.session_bootstrap import occupancy_shift_bound, quantile_bound, weighted_quantile


class TestWeightedQuantile:
    def test_by_hand(self) -> None:
        ascending = np.array([1.0, 2.0, 3.0, 4.0])
        even = np.ones(4)
        assert [weighted_quantile(ascending, even, q) for q in (0.1, 0.25, 0.26, 1)] == [1, 1, 2, 4]
        assert weighted_quantile(ascending, np.array([0.0, 0, 3, 1]), 0.1) == 3

    @settings(max_examples=50, deadline=None)
    @given(
        repeats=st.lists(st.integers(0, 5), min_size=1, max_size=10).filter(any), quantile=st.floats(0.01, 1)
    )
    def test_whole_weights_are_repeats(self, repeats: list[int], quantile: float) -> None:
        values = np.arange(len(repeats), dtype=np.float64)
        repeated = np.repeat(values, repeats)
        rank = max(1, int(np.ceil(quantile * len(repeated) * (1 - 1e-12))))
        assert weighted_quantile(values, np.array(repeats, dtype=np.float64), quantile) == repeated[rank - 1]


def bound(values: np.ndarray, sessions: np.ndarray, *, n_recent: int = 50, share: float = 0.01) -> float:
    return quantile_bound(
        values,
        np.zeros(len(values), dtype=np.int64),
        sessions,
        recent_occupancy=np.array([1000]),
        n_recent_sessions=n_recent,
        quantile=0.1,
        false_alarm_share=share,
        n_bootstrap=400,
        seed=1,
    )


def test_a_constant_has_no_width() -> None:
    assert bound(np.full(1000, 0.5), np.arange(1000) // 20) == 0.5


def test_sessions_that_agree_within_widen_the_bound() -> None:
    rng = np.random.default_rng(0)
    by_session = np.repeat(rng.normal(0, 1, 50), 20)
    blocks = np.arange(1000) // 20
    alone = rng.permutation(blocks)  # the same values, as if requests of a session were unrelated
    assert bound(by_session, blocks) < bound(by_session, alone) - 0.2


def test_fewer_sessions_and_fewer_false_alarms_widen_the_bound() -> None:
    values = np.random.default_rng(0).normal(0, 1, 1000)
    blocks = np.arange(1000) // 20
    assert bound(values, blocks, n_recent=10) < bound(values, blocks, n_recent=500)
    assert bound(values, blocks, share=0.0025) < bound(values, blocks, share=0.1)


def test_the_bound_is_in_the_shares_of_the_recent_window() -> None:
    """Two clusters at 0.9 and 0.5: where the recent window has the first alone, its 10 % quantile is 0.9."""
    clusters = np.arange(1000) % 2
    values = np.where(clusters == 0, 0.9, 0.5)
    found = quantile_bound(
        values,
        clusters,
        np.arange(1000) // 10,
        recent_occupancy=np.array([2000, 0]),
        n_recent_sessions=100,
        quantile=0.1,
        false_alarm_share=0.01,
        n_bootstrap=200,
        seed=1,
    )
    assert found == pytest.approx(0.9)


def test_occupancy_bound_of_one_cluster_is_no_shift_and_sessions_widen_it() -> None:
    def shift(one: np.ndarray, other: np.ndarray) -> np.ndarray:
        return np.abs(one[:, 0] / one.sum(axis=1) - other[:, 0] / other.sum(axis=1))

    def occupancy_bound(clusters: np.ndarray, sessions: np.ndarray) -> float:
        return occupancy_shift_bound(
            clusters,
            sessions,
            n_clusters=2,
            n_recent_sessions=50,
            shift=shift,
            false_alarm_share=0.01,
            n_bootstrap=300,
            seed=1,
        )

    blocks = np.arange(1000) // 20
    assert occupancy_bound(np.zeros(1000, dtype=np.int64), blocks) == 0
    pure = blocks % 2  # each session keeps to one cluster
    mixed = np.arange(1000) % 2
    assert occupancy_bound(mixed, blocks) == 0
    assert occupancy_bound(pure, blocks) > 0.15
