import numpy as np

from eldr_runtime.expert_use import expected_union_by_layer, log_not_used
from eldr_runtime.simulated_fleet.expected_union_tracker import ExpectedUnionTracker


def test_union_of_two_by_hand_and_back_to_nothing() -> None:
    tracker = ExpectedUnionTracker(n_layers=1, n_experts=2)
    tracker.join("a", np.log(np.array([[0.5, 1.0]])))
    tracker.join("b", np.log(np.array([[0.5, 0.25]])))
    np.testing.assert_allclose(tracker.by_layer(), [0.75 + 0.75])
    tracker.leave("a")
    tracker.leave("b")
    np.testing.assert_array_equal(tracker.by_layer(), [0.0])


def test_thousands_of_changes_leave_no_error() -> None:
    rng = np.random.default_rng(3)
    tracker = ExpectedUnionTracker(n_layers=3, n_experts=5)
    p = np.minimum(rng.random((12, 3, 5)), 0.999).astype(np.float32)
    for member in range(12):
        tracker.join(member, log_not_used(p[member]))
    for _ in range(3000):
        member = int(rng.integers(12))
        tracker.leave(member)
        tracker.join(member, log_not_used(p[member]))
    np.testing.assert_allclose(tracker.by_layer(), expected_union_by_layer(p.astype(np.float64)), atol=1e-9)
