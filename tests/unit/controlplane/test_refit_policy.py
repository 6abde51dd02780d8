from datetime import UTC, datetime, timedelta

import pytest

from controlplane.domain.refit_policy import RefitHistory, RefitLimits, decide, drift_began_at, n_in_a_row
from eldr_runtime.drift import DriftMeasure, DriftReport, DriftVerdict

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LIMITS = RefitLimits(cooldown_seconds=3600, minimum_samples=1000, max_per_day=4)
DRIFT, OK, THIN = DriftVerdict.DRIFT, DriftVerdict.OK, DriftVerdict.INSUFFICIENT_DATA


def report(verdict: DriftVerdict) -> DriftReport:
    measure = DriftMeasure(verdict=verdict, n=900, value=0.5, threshold=0.6)
    quiet = DriftMeasure(verdict=THIN, n=0, value=None, threshold=None)
    return DriftReport(version_hash="a" * 64, fit_degradation=measure, mix_shift=quiet, union_surprise=quiet)


def checks(*verdicts: DriftVerdict) -> tuple[tuple[datetime, DriftVerdict], ...]:
    return tuple((NOW - timedelta(minutes=i), verdict) for i, verdict in enumerate(verdicts))


def history(*verdicts: DriftVerdict, **values: object) -> RefitHistory:
    usual = {"last_refit_at": None, "refits_today": 0, "is_run_open": False}
    return RefitHistory(checks=checks(*verdicts), **(usual | values))


def test_drift_began_with_the_oldest_check_in_a_row() -> None:
    assert drift_began_at(checks(DRIFT, DRIFT, OK, DRIFT)) == NOW - timedelta(minutes=1)
    assert drift_began_at(checks(OK, DRIFT)) is None
    assert drift_began_at(checks()) is None
    assert n_in_a_row(checks(DRIFT, DRIFT, DRIFT, OK)) == 3
    assert n_in_a_row(checks(THIN, DRIFT)) == 0


def test_two_checks_in_a_row_start_a_refit() -> None:
    assert decide(report(DRIFT), history(DRIFT, DRIFT), LIMITS, n_samples=1000, now=NOW).should_refit


@pytest.mark.parametrize(
    ("past", "n_samples", "reason"),
    [
        (history(DRIFT, OK, DRIFT), 1000, "no_drift"),
        (history(DRIFT, DRIFT), 999, "too_few_samples"),
        (history(DRIFT, DRIFT, is_run_open=True), 1000, "already_running"),
        (history(DRIFT, DRIFT, last_refit_at=NOW - timedelta(seconds=3599)), 1000, "cooling_down"),
        (history(DRIFT, DRIFT, refits_today=4), 1000, "daily_limit"),
    ],
)
def test_what_holds_a_refit_back(past: RefitHistory, n_samples: int, reason: str) -> None:
    decision = decide(report(DRIFT), past, LIMITS, n_samples=n_samples, now=NOW)
    assert (decision.should_refit, decision.reason) == (False, reason)
    assert decision.explanation


def test_no_drift_and_no_data_start_nothing() -> None:
    assert decide(report(OK), history(OK), LIMITS, n_samples=5000, now=NOW).reason == "no_drift"
    assert decide(report(THIN), history(THIN), LIMITS, n_samples=5000, now=NOW).reason == "insufficient_data"
