from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from scipy.optimize import linear_sum_assignment

from eldr_runtime import balanced_kmeans
from eldr_runtime.array_types import Floats, Floats32, Ints
from eldr_runtime.balanced_kmeans import BalancedSphericalKMeans, assign_balanced
from eldr_runtime.errors import InvalidValue


@st.composite
def costs_and_capacities(draw: st.DrawFn) -> tuple[Floats, int]:
    n_rows, n_columns = draw(st.integers(1, 24)), draw(st.integers(1, 6))
    values = st.one_of(st.floats(0, 2, width=32), st.sampled_from([0.0, 0.5, 1.0]))
    cost = draw(npst.arrays(np.float64, (n_rows, n_columns), elements=values))
    return cost, -(-n_rows // n_columns) + draw(st.integers(0, 2))


def total(cost: Floats, labels: Ints) -> float:
    return float(cost[np.arange(len(cost)), labels].sum())


def topic_signatures(n_requests: int, n_features: int, n_topics: int, seed: int) -> Floats32:
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(n_features, 0.3), n_topics)
    shares = rng.dirichlet(np.arange(1.0, n_topics + 1))
    counts = rng.poisson(topics[rng.choice(n_topics, n_requests, p=shares)] * 300) + 0.0
    rows: Floats32 = (counts / np.linalg.norm(counts, axis=1, keepdims=True)).astype(np.float32)
    return rows


class TestAssignBalanced:
    @pytest.mark.parametrize("exact_limit", [0, 100])
    def test_by_hand(self, exact_limit: int) -> None:
        # All four rows like column 0 best, which holds two. Leaving it adds 1.0, 0.2, 0.7 and 0.1:
        # rows 3 and 1 go.
        cost = np.array([[0.0, 1.0], [0.1, 0.3], [0.2, 0.9], [0.0, 0.1]])
        assert assign_balanced(cost, 2, exact_limit=exact_limit).tolist() == [0, 1, 0, 1]

    @pytest.mark.parametrize("exact_limit", [0, 100])
    def test_chain_of_moves_by_hand(self, exact_limit: int) -> None:
        # Row 1 can only go to column 1 (0.1 more), which pushes row 2 on to column 2 (0.1 more).
        cost = np.array([[0.0, 5.0, 5.0], [0.0, 0.1, 5.0], [5.0, 0.0, 0.1]])
        assert assign_balanced(cost, 1, exact_limit=exact_limit).tolist() == [0, 1, 2]

    @given(costs_and_capacities())
    @settings(deadline=None, max_examples=60)
    def test_matches_the_plain_hungarian_reference(self, case: tuple[Floats, int]) -> None:
        cost, capacity = case
        rows, places = linear_sum_assignment(np.repeat(cost, capacity, axis=1))
        best = float(cost[rows, places // capacity].sum())
        for exact_limit in (0, 100):
            labels = assign_balanced(cost, capacity, exact_limit=exact_limit)
            assert np.bincount(labels).max() <= capacity
            assert total(cost, labels) == pytest.approx(best, abs=1e-9)

    @given(costs_and_capacities(), st.randoms(use_true_random=False))
    @settings(deadline=None, max_examples=60)
    def test_order_of_rows_does_not_change_the_cost(self, case: tuple[Floats, int], random: Random) -> None:
        cost, capacity = case
        order = np.array(random.sample(range(len(cost)), len(cost)))
        for exact_limit in (0, 100):
            here = total(cost, assign_balanced(cost, capacity, exact_limit=exact_limit))
            there = total(cost[order], assign_balanced(cost[order], capacity, exact_limit=exact_limit))
            assert here == pytest.approx(there, abs=1e-9)

    def test_transfers_leave_no_cost_gap_where_both_run(self) -> None:
        for seed in range(3):
            rows = topic_signatures(900, 60, 11, seed)
            cost = 1.0 - rows @ rows[:8].T
            exact = total(cost, assign_balanced(cost, 113, exact_limit=900))
            transfers = total(cost, assign_balanced(cost, 113, exact_limit=0))
            assert transfers / exact - 1.0 == pytest.approx(0.0, abs=1e-6)

    def test_many_equal_rows_are_moved_together(self) -> None:
        labels = assign_balanced(np.ones((5_000, 8)), 625, exact_limit=0)
        assert np.bincount(labels).tolist() == [625] * 8

    def test_too_little_capacity_is_named(self) -> None:
        with pytest.raises(InvalidValue, match=r"capacity is 1; must be at least 2 for 3 rows and 2 columns"):
            assign_balanced(np.zeros((3, 2)), 1)

    @pytest.mark.parametrize("shape", [(3,), (3, 0), (0, 3)])
    def test_costs_of_another_shape_are_named(self, shape: tuple[int, ...]) -> None:
        with pytest.raises(InvalidValue, match=r"cost shape is \(.*\); must be \(n_requests, n_centroids\)"):
            assign_balanced(np.zeros(shape), 1)

    def test_not_a_number_is_named(self) -> None:
        with pytest.raises(InvalidValue, match="cost is 'not finite'"):
            assign_balanced(np.array([[0.0, np.nan]]), 1)


class TestBalancedSphericalKMeans:
    def test_by_hand(self) -> None:
        # Two directions, three rows on one and one on the other: capacity 2 sends one of the three along.
        rows = np.array([[1, 0], [1, 0], [1, 0], [0, 1]], dtype=np.float32)
        fitted = BalancedSphericalKMeans(2).fit(rows)
        mixed = fitted.labels_[3]
        assert np.bincount(fitted.labels_).tolist() == [2, 2]
        np.testing.assert_allclose(fitted.centroids_[1 - mixed], [1.0, 0.0])
        np.testing.assert_allclose(fitted.centroids_[mixed], [np.sqrt(0.5), np.sqrt(0.5)], rtol=1e-6)
        assert fitted.cost_ == pytest.approx(2.0 * (1.0 - np.sqrt(0.5)), abs=1e-6)

    def test_vanilla_control_has_no_capacity(self) -> None:
        rows = np.array([[1, 0], [1, 0], [1, 0], [0, 1]], dtype=np.float32)
        assert sorted(np.bincount(BalancedSphericalKMeans(2, balanced=False).fit(rows).labels_)) == [1, 3]

    @given(st.integers(1, 8), st.integers(8, 40), st.integers(0, 5), st.booleans())
    @settings(deadline=None, max_examples=40)
    def test_capacity_is_never_exceeded(
        self, n_clusters: int, n_requests: int, seed: int, exact: bool
    ) -> None:
        rows = topic_signatures(n_requests, 12, 3, seed)
        fitted = BalancedSphericalKMeans(n_clusters, seed=seed, exact_limit=2000 if exact else 0).fit(rows)
        assert np.bincount(fitted.labels_).max() <= -(-n_requests // n_clusters)
        np.testing.assert_allclose(np.linalg.norm(fitted.centroids_, axis=1), 1.0, rtol=1e-5)

    def test_both_assignments_reach_the_same_fit(self) -> None:
        rows = topic_signatures(400, 40, 7, 0)
        exact = BalancedSphericalKMeans(6).fit(rows)
        transfers = BalancedSphericalKMeans(6, exact_limit=0).fit(rows)
        np.testing.assert_allclose(transfers.centroids_, exact.centroids_, atol=1e-6)

    @given(st.integers(2, 6), st.integers(8, 60), st.integers(0, 5), st.integers(2, 4))
    @settings(deadline=None, max_examples=40)
    def test_more_starts_never_cost_more(
        self, n_clusters: int, n_requests: int, seed: int, n_starts: int
    ) -> None:
        rows = topic_signatures(n_requests, 12, 5, seed)
        one = BalancedSphericalKMeans(n_clusters, seed=seed).fit(rows)
        best = BalancedSphericalKMeans(n_clusters, seed=seed, n_starts=n_starts).fit(rows)
        assert best.cost_ <= one.cost_
        assert np.bincount(best.labels_).max() <= -(-n_requests // n_clusters)

    def test_a_better_start_is_found(self) -> None:
        # The corners of a rectangle: left against right costs least, top against bottom comes to rest too.
        rows = np.array([[9, 3, 0], [9, -3, 0], [-9, 3, 0], [-9, -3, 0]], dtype=np.float32)
        rows[:, 2] = 20.0
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        costs = [BalancedSphericalKMeans(2, seed=seed).fit(rows).cost_ for seed in range(30)]
        worse = int(np.argmax(costs))
        best = BalancedSphericalKMeans(2, seed=worse, n_starts=8).fit(rows)
        assert costs[worse] > 2 * min(costs)
        assert best.cost_ == pytest.approx(min(costs))

    def test_many_rows_start_from_the_best_of_a_sample(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(balanced_kmeans, "START_ROWS", 30)
        rows = topic_signatures(300, 20, 4, 0)
        rows[:200] = 0.0  # zero rows say nothing, and are not drawn
        fitted = BalancedSphericalKMeans(4, n_starts=3).fit(rows)
        assert len(fitted.labels_) == 300
        whole = BalancedSphericalKMeans(4).fit(rows)
        assert fitted.cost_ == pytest.approx(whole.cost_, rel=0.05)

    def test_same_seed_gives_the_same_bytes_and_fit_forgets(self) -> None:
        rows = topic_signatures(60, 20, 4, 0)
        estimator = BalancedSphericalKMeans(4)
        first = estimator.fit(rows).centroids_.tobytes()
        estimator.fit(topic_signatures(30, 20, 4, 1))
        assert estimator.fit(rows).centroids_.tobytes() == first

    def test_stops_where_a_further_pass_moves_nothing(self) -> None:
        rows = topic_signatures(60, 20, 4, 0)
        settled = BalancedSphericalKMeans(4).fit(rows)
        longer = BalancedSphericalKMeans(4, max_iterations=settled.n_iterations_ + 5).fit(rows)
        assert settled.n_iterations_ < 50
        np.testing.assert_array_equal(longer.centroids_, settled.centroids_)
        assert BalancedSphericalKMeans(4, max_iterations=1).fit(rows).n_iterations_ == 1

    def test_finds_separate_topics(self) -> None:
        rows = np.repeat(np.eye(3, 9, dtype=np.float32), 5, axis=0)
        labels = BalancedSphericalKMeans(3).fit(rows).labels_.reshape(3, 5)
        assert (labels == labels[:, :1]).all()
        assert sorted(labels[:, 0]) == [0, 1, 2]

    def test_empty_cluster_keeps_its_centroid(self) -> None:
        rows = np.array([[1, 0], [1, 0]], dtype=np.float32)
        fitted = BalancedSphericalKMeans(2, balanced=False).fit(rows)
        np.testing.assert_array_equal(fitted.centroids_, rows)

    def test_zero_signatures_belong_somewhere_and_are_no_start(self) -> None:
        rows = np.array([[0, 0], [1, 0], [0, 0], [0, 1]], dtype=np.float32)
        fitted = BalancedSphericalKMeans(2).fit(rows)
        assert np.bincount(fitted.labels_).tolist() == [2, 2]
        np.testing.assert_allclose(np.sort(fitted.centroids_.argmax(axis=1)), [0, 1])

    def test_predict_takes_the_nearest_and_the_lowest_on_ties(self) -> None:
        fitted = BalancedSphericalKMeans(2).fit(np.eye(2, dtype=np.float32))
        fitted.centroids_ = np.eye(2, dtype=np.float32)
        rows = np.array([[0.6, 0.8], [0.8, 0.6], [0.0, 0.0]], dtype=np.float32)
        assert fitted.predict(rows).tolist() == [1, 0, 0]

    def test_fewer_requests_than_clusters_is_named(self) -> None:
        with pytest.raises(InvalidValue, match="n_requests is 2; must be at least the 3 clusters"):
            BalancedSphericalKMeans(3).fit(np.eye(2, dtype=np.float32))

    @pytest.mark.parametrize(
        ("rows", "message"),
        [
            ([[1.0, 0.0], [np.nan, 0.0]], r"signatures\[1\] is 'of norm nan'; must be of norm 1, or zero"),
            ([[3.0, 4.0], [1.0, 0.0]], r"signatures\[0\] is 'of norm 5.0'"),
            ([1.0, 0.0], r"signatures is 'of shape \(2,\)'"),
        ],
    )
    def test_wrong_signatures_are_named(self, rows: list[object], message: str) -> None:
        with pytest.raises(InvalidValue, match=message):
            BalancedSphericalKMeans(1).fit(np.array(rows, dtype=np.float32))

    @pytest.mark.parametrize("field", ["n_clusters", "n_starts", "max_iterations"])
    def test_settings_below_one_are_named(self, field: str) -> None:
        arguments = {"n_clusters": 1, "max_iterations": 1, "n_starts": 1, field: 0}
        with pytest.raises(InvalidValue, match=f"{field} is 0; must be an integer of at least 1"):
            BalancedSphericalKMeans(**arguments).fit(np.eye(2, dtype=np.float32))
