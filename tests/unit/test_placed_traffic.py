import numpy as np
import pytest

from eldr_runtime.errors import InvalidValue
from eldr_runtime.placed_traffic import place_traffic

AXES = np.eye(3, dtype=np.float32)


def test_by_hand() -> None:
    signatures = np.array([[0.6, 0.8, 0], [1, 0, 0], [0, 0, 0], [0, 0, 1]], dtype=np.float32)
    placed = place_traffic(signatures, AXES, sessions=["b", "a", "gone", "b"])
    assert placed.similarities == pytest.approx([0.8, 1, 1])
    assert placed.clusters.tolist() == [1, 0, 2]
    assert placed.sessions.tolist() == [1, 0, 1]
    assert (len(placed), placed.n_sessions, placed.n_clusters) == (3, 2, 3)
    assert placed.occupancy().tolist() == [1, 1, 1]


def test_without_sessions_each_request_is_its_own() -> None:
    assert place_traffic(AXES[[0, 0, 1]], AXES).n_sessions == 3


def test_nothing_is_placed_as_nothing() -> None:
    placed = place_traffic(np.zeros((2, 3), dtype=np.float32), AXES)
    assert (len(placed), placed.n_sessions, placed.occupancy().tolist()) == (0, 0, [0, 0, 0])


@pytest.mark.parametrize(
    ("signatures", "sessions"),
    [
        (np.zeros((2, 4), dtype=np.float32), None),
        (np.zeros(3, dtype=np.float32), None),
        (np.full((2, 3), np.nan, dtype=np.float32), None),
        (AXES, ["a"]),
    ],
)
def test_refuses(signatures: np.ndarray, sessions: list[str] | None) -> None:
    with pytest.raises(InvalidValue):
        place_traffic(signatures, AXES, sessions)
