"""When drift starts a refit, and on which requests."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from eldr_runtime.drift import DriftReport, DriftVerdict, RefitDecision, RefitReason, decide_refit

# One check in drift may be chance; windows overlap, so more add little.
CHECKS_IN_A_ROW = 2
A_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RefitLimits:
    """What keeps refits rare."""

    cooldown_seconds: float
    minimum_samples: int
    max_per_day: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RefitHistory:
    """What happened before: refits, and the checks of the version that is active, newest first."""

    last_refit_at: datetime | None
    refits_today: int
    is_run_open: bool
    checks: tuple[tuple[datetime, DriftVerdict], ...]


def drift_began_at(checks: Sequence[tuple[datetime, DriftVerdict]]) -> datetime | None:
    """Time of the oldest of the checks, newest first, that found drift without a break until now.

    Examples
    --------
    >>> from datetime import UTC
    >>> at = [datetime(2026, 3, 1, hour, tzinfo=UTC) for hour in (3, 2, 1)]
    >>> drift_began_at(list(zip(at, (DriftVerdict.DRIFT, DriftVerdict.DRIFT, DriftVerdict.OK)))).hour
    2
    """
    began = None
    for at, verdict in checks:
        if verdict is not DriftVerdict.DRIFT:
            break
        began = at
    return began


def n_in_a_row(checks: Sequence[tuple[datetime, DriftVerdict]]) -> int:
    """Count the checks, newest first, that found drift without a break until now."""
    began = drift_began_at(checks)
    return 0 if began is None else sum(at >= began for at, _ in checks)


def decide(
    report: DriftReport, history: RefitHistory, limits: RefitLimits, *, n_samples: int, now: datetime
) -> RefitDecision:
    """Decide on a refit; `n_samples` are those that came since the drift began.

    `history` ends with the check that `report` is of.
    """
    decision = decide_refit(
        report,
        last_refit_at=history.last_refit_at,
        cooldown_seconds=limits.cooldown_seconds,
        now=now,
        n_samples=n_samples,
        minimum_samples=limits.minimum_samples,
        refits_today=history.refits_today,
        max_per_day=limits.max_per_day,
        is_refit_running=history.is_run_open,
    )
    n_checks = n_in_a_row(history.checks)
    if decision.should_refit and n_checks < CHECKS_IN_A_ROW:
        explanation = f"{n_checks} check in drift, {CHECKS_IN_A_ROW} in a row needed; {decision.explanation}"
        return RefitDecision(should_refit=False, reason=RefitReason.NO_DRIFT, explanation=explanation)
    return decision
