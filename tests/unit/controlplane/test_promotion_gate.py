from datetime import UTC, datetime, timedelta

import pytest

from controlplane.domain.promotion_gate import GateComparison, check_state, check_union, is_allowed
from controlplane.domain.versions import GateCheck, VersionState

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def comparison(low: float, high: float, *, other: str = "a", minutes: int = 0) -> GateComparison:
    return GateComparison(
        other_hash=other,
        mean_points=(low + high) / 2,
        low_points=low,
        high_points=high,
        batch_size=16,
        n_requests=500,
        trace="trace pack 'monday'",
        is_held_out=True,
        compared_at=NOON + timedelta(minutes=minutes),
    )


@pytest.mark.parametrize(("high", "is_passed"), [(-1.0, True), (0.5, True), (0.51, False), (3.0, False)])
def test_the_upper_end_of_the_interval_decides(high: float, is_passed: bool) -> None:
    assert check_union("a", [comparison(-2.0, high)]).is_passed is is_passed


def test_nothing_active_passes_and_no_comparison_fails() -> None:
    assert check_union(None, []).is_passed
    missing = check_union("a", [comparison(-2, -1, other="b")])
    assert (missing.is_passed, missing.detail) == (False, "no decode counts to judge by")


def test_the_newest_comparison_with_the_active_version_counts() -> None:
    old, new = comparison(1.0, 2.0), comparison(-2.0, -1.0, minutes=5)
    assert check_union("a", [new, old]).is_passed
    assert "from -2.00 to -1.00" in check_union("a", [old, new]).detail


def test_a_candidate_is_promoted_and_a_retired_version_again() -> None:
    passed = {state for state in VersionState if check_state(state).is_passed}
    assert passed == {VersionState.CANDIDATE, VersionState.RETIRED}


def test_an_override_passes_a_failed_comparison_and_nothing_else() -> None:
    union = check_union("a", [])
    artifact = GateCheck(name="artifact", is_passed=False, detail="hash differs")
    assert not is_allowed([union], is_override=False)
    assert is_allowed([union], is_override=True)
    assert not is_allowed([union, artifact], is_override=True)
    assert not is_allowed([check_state(VersionState.REJECTED)], is_override=True)
