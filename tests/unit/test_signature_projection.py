import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eldr_runtime.array_types import Floats32
from eldr_runtime.errors import InvalidValue
from eldr_runtime.signature_projection import (
    MAX_POINTS,
    align,
    label_agreement,
    match_centroids,
    project,
)


def unit_rows(n_rows: int, n_features: int, seed: int = 0) -> Floats32:
    rows = np.random.default_rng(seed).random((n_rows, n_features))
    unit: Floats32 = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return unit


class TestProject:
    def test_by_hand(self) -> None:
        # Four points on a line from (0, 0) to (3, 4), mean (1.5, 2): along it -2.5, 0, 0, 2.5.
        rows = np.array([[0, 0], [1.5, 2], [1.5, 2], [3, 4]], dtype=np.float32)
        shown = project(rows, rows[3:], n_components=1)
        np.testing.assert_allclose(np.abs(shown.components), [[0.6, 0.8]], rtol=1e-6)
        np.testing.assert_allclose(np.abs(shown.points[:, 0]), [2.5, 0, 0, 2.5], atol=1e-6)
        np.testing.assert_allclose(shown.explained_share, [1.0])
        np.testing.assert_allclose(shown.centroid_points[0], shown.points[3])

    def test_places_further_signatures_on_the_same_axes(self) -> None:
        rows = unit_rows(40, 100)
        shown = project(rows, rows[:2])
        np.testing.assert_allclose(shown.place(rows), shown.points, atol=1e-6)
        np.testing.assert_allclose(shown.components @ shown.components.T, np.eye(3), atol=1e-6)

    def test_draws_from_many_requests(self) -> None:
        rows = unit_rows(MAX_POINTS + 10, 4)
        shown = project(rows, rows[:2], seed=3)
        assert shown.points.shape == (MAX_POINTS, 3)
        assert len(set(shown.rows.tolist())) == MAX_POINTS
        np.testing.assert_allclose(shown.place(rows[shown.rows]), shown.points, atol=1e-6)

    def test_equal_requests_show_no_variance(self) -> None:
        rows = np.tile(np.array([[0.6, 0.8]], dtype=np.float32), (3, 1))
        for equal in (rows, rows[:1]):
            shown = project(equal, rows[:1], n_components=1)
            np.testing.assert_array_equal(shown.explained_share, [0.0])

    @pytest.mark.parametrize("n_components", [0, 3])
    def test_components_that_do_not_exist_are_named(self, n_components: int) -> None:
        with pytest.raises(InvalidValue, match=f"n_components is {n_components}; must be from 1 to 2"):
            project(unit_rows(5, 2), unit_rows(1, 2), n_components)


class TestAlign:
    def test_undoes_order_and_sign_of_the_features(self) -> None:
        rows = unit_rows(30, 6)
        reference = project(rows, rows[:2], n_components=2)
        turned = project(-rows[:, ::-1], -rows[:2, ::-1], n_components=2)
        aligned = align(reference, turned)
        np.testing.assert_allclose(aligned.points, reference.points, atol=1e-6)
        np.testing.assert_allclose(aligned.centroid_points, reference.centroid_points, atol=1e-6)
        assert aligned.disparity == pytest.approx(0.0, abs=1e-9)

    def test_keeps_distances_of_another_figure(self) -> None:
        reference = project(unit_rows(20, 6), unit_rows(2, 6), n_components=2)
        other = project(unit_rows(20, 6, 1), unit_rows(2, 6, 1), n_components=2)
        aligned = align(reference, other)
        before = np.linalg.norm(other.points[0] - other.points[1])
        assert np.linalg.norm(aligned.points[0] - aligned.points[1]) == pytest.approx(before)
        assert 0.1 < aligned.disparity <= 1.0

    def test_other_requests_are_refused(self) -> None:
        reference = project(unit_rows(20, 6), unit_rows(2, 6))
        with pytest.raises(InvalidValue, match=r"points is 'of shape \(19, 3\)'"):
            align(reference, project(unit_rows(19, 6), unit_rows(2, 6)))


class TestMatchCentroids:
    def test_by_hand(self) -> None:
        # Row 0 is nearest to both; the sum is greatest when it takes the first and row 1 the second.
        reference = np.array([[1.0, 0.0], [0.8, 0.6]], dtype=np.float32)
        other = np.array([[0.6, 0.8], [1.0, 0.0]], dtype=np.float32)
        assert match_centroids(reference, other).tolist() == [1, 0]

    @given(st.permutations(range(6)))
    @settings(deadline=None, max_examples=20)
    def test_finds_any_renumbering(self, order: list[int]) -> None:
        centroids = unit_rows(6, 12)
        assert (centroids[order][match_centroids(centroids, centroids[order])] == centroids).all()

    def test_other_features_are_refused(self) -> None:
        with pytest.raises(InvalidValue, match=r"shape of other is \(2, 4\)"):
            match_centroids(unit_rows(2, 3), unit_rows(2, 4))


def test_label_agreement_ignores_the_numbering() -> None:
    assert label_agreement(np.array([0, 0, 1, 1]), np.array([5, 5, 2, 2])) == 1.0
    assert label_agreement(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])) < 0.0
