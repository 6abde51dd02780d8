from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import spearmanr

from eldr_runtime.errors import InvalidValue
from eldr_runtime.signature_quality import (
    RankTarget,
    canonical_pairs,
    estimate_rho,
    pair_cosines,
    pair_dots,
    rho,
    sample_pairs,
    squared_norms,
)

SIGNATURES = np.array([[1, 0], [1, 0], [0.6, 0.8], [0, 1]], dtype=np.float32)
DECODE_COUNTS = np.array([[[5, 0]], [[3, 4]], [[4, 3]], [[0, 5]]], dtype=np.uint32)
ALL_PAIRS = np.array([[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]])


def test_rho_of_four_requests_by_hand() -> None:
    # Signature distances 0, 0.4, 1, 0.4, 1, 0.2: ranks 1, 3.5, 5.5, 3.5, 5.5, 2.
    # Decode distances 0.4, 0.2, 1, 0.04, 0.2, 0.4: ranks 4.5, 2.5, 6, 1, 2.5, 4.5.
    # Deviations from 3.5: products sum to -2.5 + 0 + 5 + 0 - 2 - 1.5 = -1, squares to 16.5 on both sides.
    assert rho(SIGNATURES, DECODE_COUNTS, ALL_PAIRS) == pytest.approx(-1 / 16.5, abs=1e-12)


def test_equal_sides_have_rho_one() -> None:
    rng = np.random.default_rng(3)
    counts = rng.integers(0, 9, size=(20, 2, 4), dtype=np.uint32)
    signatures = counts.reshape(20, 8).astype(np.float32)
    assert rho(signatures, counts, sample_pairs(20, 100, 1)) == pytest.approx(1, abs=1e-9)


def test_signatures_without_order_have_rho_zero() -> None:
    assert rho(np.ones((4, 3), dtype=np.float32), DECODE_COUNTS, ALL_PAIRS) == 0.0
    assert rho(np.zeros((4, 3), dtype=np.float32), DECODE_COUNTS, ALL_PAIRS) == 0.0


class TestSamplePairs:
    def test_no_request_with_itself_and_the_same_for_the_same_seed(self) -> None:
        pairs = sample_pairs(5, 1000, seed=7)
        assert pairs.dtype == np.int64
        assert (pairs[:, 0] != pairs[:, 1]).all()
        assert set(pairs.ravel().tolist()) == {0, 1, 2, 3, 4}
        assert_array_equal(pairs, sample_pairs(5, 1000, seed=7))
        assert not np.array_equal(pairs, sample_pairs(5, 1000, seed=8))

    def test_is_the_published_draw(self) -> None:
        drawn = np.random.default_rng(1).integers(0, 9, size=(50, 2))
        assert_array_equal(sample_pairs(9, 50, 1), [pair for pair in drawn if pair[0] != pair[1]])

    @pytest.mark.parametrize(
        ("n_requests", "n_pairs", "message"),
        [(1, 5, "n_requests is 1; must be at least 2"), (2, 0, "n_pairs is 0; must be at least 1")],
    )
    def test_refusals(self, n_requests: int, n_pairs: int, message: str) -> None:
        with pytest.raises(InvalidValue, match=message):
            sample_pairs(n_requests, n_pairs, 1)


class TestRankTarget:
    def test_tied_runs_by_hand(self) -> None:
        # Ranks 1.5, 1.5, 4, 4, 4 against 1, 2, 3, 4, 5: deviations -1.5, -1.5, 1, 1, 1 and -2 ... 2.
        target = RankTarget.from_values(np.arange(5, dtype=np.float32))
        expected = (3 + 1.5 + 0 + 1 + 2) / sqrt(7.5 * 10)
        found = target.correlation(np.array([0.1, 0.1, 0.7, 0.7, 0.7], dtype=np.float32))
        assert found == pytest.approx(expected, abs=1e-12)

    def test_both_zeros_are_one_value(self) -> None:
        target = RankTarget.from_values(np.array([1, 2, 3], dtype=np.float32))
        found = target.correlation(np.array([0.0, -0.0, 1.0], dtype=np.float32))
        assert found == pytest.approx(sqrt(3) / 2, abs=1e-12)

    @settings(deadline=None)
    @given(
        values=st.lists(st.tuples(st.integers(-6, 6), st.integers(-6, 6)), min_size=3, max_size=40).filter(
            lambda rows: all(len({row[side] for row in rows}) > 1 for side in (0, 1))
        )
    )
    def test_equals_scipy_with_ties_and_signs(self, values: list[tuple[int, int]]) -> None:
        first, second = (np.array(side, dtype=np.float32) / 7 for side in zip(*values, strict=True))
        found = RankTarget.from_values(first).correlation(second)
        assert found == pytest.approx(spearmanr(first, second).statistic, abs=1e-9)


class TestPairs:
    @pytest.mark.parametrize("n_rows", [4, 100], ids=["gram matrix", "gathered"])
    def test_dots_of_large_counts(self, n_rows: int) -> None:
        # 85,000 squared does not fit 32 bits.
        rows = np.random.default_rng(1).integers(0, 85_000, size=(n_rows, 9), dtype=np.uint32)
        pairs = sample_pairs(n_rows, 10, seed=1)
        wide = rows.astype(np.float64)
        expected = (wide[pairs[:, 0]] * wide[pairs[:, 1]]).sum(axis=1)
        assert_allclose(pair_dots(rows, pairs), expected, rtol=1e-6)

    def test_cosine_with_a_zero_row_is_zero(self) -> None:
        rows = np.array([[3, 4], [0, 0], [4, 3]], dtype=np.float32)
        pairs = np.array([[0, 1], [0, 2]])
        assert_allclose(pair_cosines(rows, pairs), [0, 0.96], rtol=1e-6)

    def test_equal_rows_and_swapped_pairs_are_one_pair(self) -> None:
        rows = np.array([[1, 2], [3, 4], [1, 2], [2, 1]], dtype=np.float32)
        pairs = np.array([[0, 1], [1, 0], [2, 1], [2, 0], [3, 0]])
        found = canonical_pairs(rows, pairs, squared_norms(rows))
        assert found.tolist() == [[0, 1], [0, 1], [0, 1], [0, 0], [0, 3]]


def noisy_requests(n_requests: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    use = rng.gamma(1, size=(n_requests, 2, 8))
    signatures = rng.poisson(20 * use).astype(np.float32).reshape(n_requests, 16)
    return signatures, rng.poisson(20 * use).astype(np.uint32)


class TestEstimateRho:
    def test_equals_rho_on_its_pairs_and_lies_in_its_interval(self) -> None:
        signatures, decode_counts = noisy_requests(60, seed=1)
        estimate = estimate_rho(signatures, decode_counts, n_pairs=500, seed=4)
        pairs = sample_pairs(60, 500, 4)
        assert estimate.rho == rho(signatures, decode_counts, pairs)
        assert estimate.n_pairs == len(pairs)
        low, high = estimate.interval
        assert low < estimate.rho < high
        again = estimate_rho(signatures, decode_counts, n_pairs=500, seed=4)
        assert estimate == again

    def test_interval_covers_rho_of_other_requests(self) -> None:
        # Each estimate must cover the value from a far larger sample about 19 times in 20.
        big_signatures, big_counts = noisy_requests(600, seed=99)
        truth = rho(big_signatures, big_counts, sample_pairs(600, 20_000, 1))
        n_covered = 0
        for seed in range(20):
            estimate = estimate_rho(*noisy_requests(60, seed), n_pairs=1500, seed=1, n_bootstrap=100)
            low, high = estimate.interval
            n_covered += low <= truth <= high
        assert n_covered >= 15

    def test_more_requests_narrow_the_interval(self) -> None:
        few = estimate_rho(*noisy_requests(30, 1), n_pairs=2000, seed=1)
        many = estimate_rho(*noisy_requests(300, 1), n_pairs=2000, seed=1)
        assert many.interval[1] - many.interval[0] < few.interval[1] - few.interval[0]

    def test_refuses_no_bootstrap(self) -> None:
        with pytest.raises(InvalidValue, match="n_bootstrap is 0; must be at least 1"):
            estimate_rho(SIGNATURES, DECODE_COUNTS, seed=1, n_bootstrap=0)


@pytest.mark.parametrize(
    ("signatures", "pairs", "message"),
    [
        (SIGNATURES[0], ALL_PAIRS, r"signatures shape is \(2,\); must be \(n_requests, n_features\)"),
        (SIGNATURES[:3], ALL_PAIRS, r"len\(decode_counts\) is 4; must be 3"),
        (SIGNATURES, ALL_PAIRS[:1], r"pairs shape is \(1, 2\); must be .* at least 2 pairs"),
        (SIGNATURES, ALL_PAIRS + 1, "pairs is 4; must be from 0 to 3"),
    ],
)
def test_bad_sides(signatures: np.ndarray, pairs: np.ndarray, message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        rho(signatures, DECODE_COUNTS, pairs)
