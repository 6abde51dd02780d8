"""What a version must show before it becomes active."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from controlplane.domain.versions import GateCheck, VersionState

# A version may be worse than the active one by this much at most, at 95 %.
LIMIT_POINTS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class GateComparison:
    """A version's held-out union change less that of another one, in points; below 0 it is better.

    `trace` says which requests they were compared on, `is_held_out` whether neither was fitted on them.
    """

    other_hash: str
    mean_points: float
    low_points: float
    high_points: float
    batch_size: int
    n_requests: int
    trace: str
    is_held_out: bool
    compared_at: datetime

    @property
    def is_not_worse(self) -> bool:
        """Whether the version is worse by no more than the limit, at 95 %."""
        return self.high_points <= LIMIT_POINTS


def check_union(active_hash: str | None, comparisons: Sequence[GateComparison]) -> GateCheck:
    """Judge by the newest comparison with the version that is active now."""
    if active_hash is None:
        return _union(True, "nothing active to compare with")
    with_active = [comparison for comparison in comparisons if comparison.other_hash == active_hash]
    if not with_active:
        return _union(False, "no decode counts to judge by")
    newest = max(with_active, key=lambda comparison: comparison.compared_at)
    detail = (
        f"{newest.mean_points:+.2f} points against the active version, 95 % from {newest.low_points:+.2f} to "
        f"{newest.high_points:+.2f}, limit {LIMIT_POINTS:+.2f}; batches of {newest.batch_size} of "
        f"{newest.n_requests} requests of {newest.trace}, placed under the load cap"
    )
    if not newest.is_held_out:
        detail += ", which one of the two was fitted on"
    return _union(newest.is_not_worse, detail)


def check_state(state: VersionState) -> GateCheck:
    """Let a candidate pass, and a retired version again: the union check judges both alike."""
    hints = {
        VersionState.CANDIDATE: "a candidate",
        VersionState.ACTIVE: "active already",
        VersionState.RETIRED: "was active before",
        VersionState.REJECTED: "rejected, which is final",
    }
    is_passed = state in (VersionState.CANDIDATE, VersionState.RETIRED)
    return GateCheck(name="state", is_passed=is_passed, detail=hints[state])


def is_allowed(checks: Sequence[GateCheck], *, is_override: bool) -> bool:
    """Whether a version may be promoted; an override passes a failed comparison and nothing else."""
    return all(check.is_passed or (is_override and check.name == UNION_CHECK) for check in checks)


UNION_CHECK = "held-out union"


def _union(is_passed: bool, detail: str) -> GateCheck:
    return GateCheck(name=UNION_CHECK, is_passed=is_passed, detail=detail)
