from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import spearmanr

from eldr_runtime.errors import Cancelled, InvalidValue
from eldr_runtime.layer_selection import select_layers
from eldr_runtime.signature_quality import rho, sample_pairs

# Three requests, 2 layers, 2 experts.
# Decode cosines of pairs 01, 02, 12: 0.8, 0, 0.6.
DECODE_COUNTS = np.array([[[5, 0], [0, 0]], [[4, 3], [0, 0]], [[0, 5], [0, 0]]], dtype=np.uint32)
# Layer 0 alone: 0, 0.71, 0.71. Layer 1 alone: 0.8, 0, 0.6. Both: 20/26, 1/sqrt(26 * 27), 16/sqrt(26 * 27).
WEIGHTED = np.array([[[1, 0], [5, 0]], [[0, 1], [4, 3]], [[1, 1], [0, 5]]], dtype=np.float32)
PAIRS = np.array([[0, 1], [0, 2], [1, 2]])


class TestByHand:
    def test_first_step_takes_the_layer_that_orders_like_decode(self) -> None:
        selection = select_layers(WEIGHTED, DECODE_COUNTS, PAIRS)
        assert selection.order == (1, 0)
        assert_allclose(selection.rho_by_length, [1, 1], atol=1e-12)

    def test_equal_prefixes_keep_the_shortest(self) -> None:
        selection = select_layers(WEIGHTED, DECODE_COUNTS, PAIRS)
        assert selection.n_kept == 1
        assert selection.mask.tolist() == [False, True]

    def test_a_layer_alone(self) -> None:
        # Ranks 1, 2.5, 2.5 against 3, 1, 2: products -1.5, squares 1.5 and 2.
        selection = select_layers(WEIGHTED[:, :1], DECODE_COUNTS[:, :1], PAIRS)
        assert selection.rho_by_length[0] == pytest.approx(-1.5 / np.sqrt(1.5 * 2), abs=1e-12)
        assert selection.mask.tolist() == [True]

    def test_equal_layers_are_taken_in_order(self) -> None:
        twice = np.repeat(WEIGHTED[:, 1:], 2, axis=1)
        assert select_layers(twice, DECODE_COUNTS, PAIRS).order == (0, 1)

    def test_a_layer_that_weighs_nothing_changes_nothing(self) -> None:
        weighted = WEIGHTED * np.array([0, 1], dtype=np.float32)[:, None]
        selection = select_layers(weighted, DECODE_COUNTS, PAIRS)
        assert selection.order == (1, 0)
        assert_allclose(selection.rho_by_length, [1, 1], atol=1e-12)


def random_case(seed: int, n_requests: int = 10, n_layers: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    use = rng.gamma(0.5, size=(n_requests, n_layers, 6))
    weighted = rng.poisson(9 * use) * rng.uniform(0.5, 1.5, size=(n_layers, 6))
    return weighted.astype(np.float32), rng.poisson(9 * use + 0.1).astype(np.uint32)


def reference_rho(weighted: np.ndarray, decode_counts: np.ndarray, pairs: np.ndarray) -> float:
    def cosines(rows: np.ndarray) -> np.ndarray:
        flat = rows.reshape(len(rows), -1).astype(np.float64)
        flat /= np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-9)
        # float noise must not part values that are equal
        return np.round((flat[pairs[:, 0]] * flat[pairs[:, 1]]).sum(axis=1), 12)

    sides = cosines(weighted), cosines(decode_counts)
    if any(len(np.unique(side)) == 1 for side in sides):
        return 0.0
    return float(spearmanr(*sides).statistic)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_each_step_is_the_best_one_by_a_plain_reference(seed: int) -> None:
    weighted, decode_counts = random_case(seed)
    pairs = np.array(list(combinations(range(10), 2)))
    selection = select_layers(weighted, decode_counts, pairs)
    assert sorted(selection.order) == [0, 1, 2, 3]
    for length in range(1, 5):
        taken = list(selection.order[: length - 1])
        rest = [layer for layer in range(4) if layer not in taken]
        best = max(reference_rho(weighted[:, [*taken, layer]], decode_counts, pairs) for layer in rest)
        assert selection.rho_by_length[length - 1] == pytest.approx(best, abs=2e-3)
    assert selection.n_kept == int(np.argmax(selection.rho_by_length)) + 1
    assert sorted(np.flatnonzero(selection.mask)) == sorted(selection.order[: selection.n_kept])


@pytest.mark.parametrize(("n_requests", "n_pairs"), [(30, 400), (200, 60)], ids=["gram matrix", "gathered"])
def test_last_point_of_the_curve_is_rho_of_all_layers(n_requests: int, n_pairs: int) -> None:
    weighted, decode_counts = random_case(5, n_requests)
    pairs = sample_pairs(n_requests, n_pairs, 1)
    selection = select_layers(weighted, decode_counts, pairs)
    whole = rho(weighted.reshape(n_requests, -1), decode_counts, pairs)
    assert selection.rho_by_length[-1] == pytest.approx(whole, abs=1e-4)


def test_steps_are_reported_and_can_stop_it() -> None:
    seen: list[tuple[int, int]] = []
    select_layers(WEIGHTED, DECODE_COUNTS, PAIRS, lambda done, total: seen.append((done, total)))
    assert seen == [(1, 2), (2, 2)]

    def stop(done: int, total: int) -> None:
        raise Cancelled(f"after {done} of {total}")

    with pytest.raises(Cancelled, match="after 1 of 2"):
        select_layers(WEIGHTED, DECODE_COUNTS, PAIRS, stop)


def test_inputs_are_not_changed() -> None:
    weighted, decode_counts = WEIGHTED.copy(), DECODE_COUNTS.copy()
    select_layers(weighted, decode_counts, PAIRS)
    assert (weighted == WEIGHTED).all()
    assert (decode_counts == DECODE_COUNTS).all()


@pytest.mark.parametrize(
    ("weighted", "decode_counts", "pairs", "message"),
    [
        (WEIGHTED[0], DECODE_COUNTS, PAIRS, r"weighted is 'float32 \(2, 2\)'; must be float32"),
        (WEIGHTED.astype(float), DECODE_COUNTS, PAIRS, "weighted is 'float64"),
        (WEIGHTED, DECODE_COUNTS[:2], PAIRS, r"decode_counts shape is \(2, 2, 2\); must be \(3, 2, 2\)"),
        (WEIGHTED, DECODE_COUNTS, PAIRS + 1, "pairs is 3; must be from 0 to 2"),
    ],
)
def test_refusals(weighted: np.ndarray, decode_counts: np.ndarray, pairs: np.ndarray, message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        select_layers(weighted, decode_counts, pairs)
