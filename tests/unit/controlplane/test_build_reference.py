import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.services.build_reference import leave_one_out_similarities


def unit(rows: list[list[float]]) -> np.ndarray:
    found = np.array(rows, dtype=np.float32)
    return found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-9)


def centroids_of(signatures: np.ndarray, labels: np.ndarray, n_clusters: int) -> np.ndarray:
    return unit([signatures[labels == k].sum(axis=0).tolist() for k in range(n_clusters)])


def test_two_of_three_by_hand() -> None:
    signatures = unit([[1, 0], [1, 0], [0, 1]])
    labels = np.array([0, 0, 0])
    found = leave_one_out_similarities(signatures, labels, centroids_of(signatures, labels, 1))
    # Without the first the rest points to (1, 1): 45 degrees. Without the third it points along (1, 0).
    assert found == pytest.approx([0.5**0.5, 0.5**0.5, 0.0], abs=1e-6)


def test_one_alone_in_its_cluster_is_compared_with_the_others() -> None:
    signatures = unit([[1, 0], [1, 1]])
    labels = np.array([0, 1])
    found = leave_one_out_similarities(signatures, labels, centroids_of(signatures, labels, 2))
    assert found == pytest.approx([0.5**0.5, 0.5**0.5], abs=1e-6)


def test_a_zero_signature_is_like_nothing() -> None:
    signatures = unit([[0, 0], [1, 0], [1, 0]])
    labels = np.array([0, 0, 0])
    found = leave_one_out_similarities(signatures, labels, centroids_of(signatures, labels, 1))
    assert found == pytest.approx([0, 1, 1], abs=1e-6)


@given(st.integers(0, 2**32 - 1))
def test_it_is_what_taking_each_out_and_fitting_the_mean_again_gives(seed: int) -> None:
    rng = np.random.default_rng(seed)
    signatures = unit(rng.random((12, 5)).tolist())
    labels = np.arange(12) % 3
    centroids = centroids_of(signatures, labels, 3)
    for row, found in enumerate(leave_one_out_similarities(signatures, labels, centroids)):
        others = np.arange(12) != row
        without = centroids_of(signatures[others], labels[others], 3)
        mixed = centroids.copy()
        mixed[labels[row]] = without[labels[row]]
        assert found == pytest.approx(float((mixed @ signatures[row]).max()), abs=1e-5)
