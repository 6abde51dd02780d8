"""Keep a drift check, decide on a refit, and raise the alerts that drift asks for: one transaction."""

from dataclasses import replace
from datetime import datetime, timedelta

from controlplane.domain.alert_rules import Reading, RuleName
from controlplane.domain.calibrations import StartCalibration
from controlplane.domain.pages import Page, to_page
from controlplane.domain.refit_policy import A_DAY, RefitHistory, RefitLimits, decide, drift_began_at
from controlplane.domain.telemetry import DriftCheck, DriftMeasure
from controlplane.errors import RefusedRequest
from controlplane.services.calibrate import start_calibration
from controlplane.services.keep_reference import write_drift
from controlplane.services.manage_fleets import get_fleet, lock_fleet
from controlplane.services.measure_traffic import MeasuredTraffic
from controlplane.services.raise_alerts import apply_readings
from controlplane.services.record_change import Change
from controlplane.settings import Settings
from controlplane.storage.database import ReadSession, WriteSession
from controlplane.storage.models.metadata import new_id
from controlplane.storage.repositories import (
    calibration_runs,
    drift_checks,
    samples,
    version_references,
    versions,
)
from controlplane.storage.repositories.samples import SampleFilter
from eldr_runtime.centroid_version import VersionOrigin
from eldr_runtime.drift import DriftMeasure as MeasuredDrift
from eldr_runtime.drift import DriftVerdict
from eldr_runtime.errors import EldrError

DRIFT_RULES = (RuleName.FIT_DEGRADATION, RuleName.MIX_SHIFT, RuleName.UNION_SURPRISE)
# Past checks that a run of them in drift is looked for in.
HISTORY = 200
# A value just on the good side of its bound does not end an alert: it must be better by this share.
CLEAR_MARGIN = 0.01


def keep_check(change: Change, fleet: str, measured: MeasuredTraffic, settings: Settings) -> DriftCheck:
    """Store a check with its decision; start a refit if that is the decision; step the alerts."""
    session = change.session
    lock_fleet(session, fleet)
    if measured.new_reference is not None:
        version_references.keep_drift(session, measured.version_id, write_drift(measured.new_reference))
    check = _to_check(measured, change.now)
    decision = _decide_refit(change, fleet, measured, check, settings)
    check = replace(check, refit_decision=decision)
    drift_checks.add_check(session, fleet, check)
    apply_readings(change, fleet, DRIFT_RULES, _readings(measured))
    return check


def list_checks(
    session: ReadSession, fleet: str, since: datetime | None, cursor: str | None, limit: int
) -> Page[DriftCheck]:
    """List checks, newest first."""
    get_fleet(session, fleet)
    found = drift_checks.list_checks(session, fleet, since=since, before_id=cursor, limit=limit + 1)
    return to_page(found, limit, lambda check: check.id)


def _to_check(measured: MeasuredTraffic, now: datetime) -> DriftCheck:
    report = measured.report
    return DriftCheck(
        id=new_id(),
        at=now,
        version_id=measured.version_id,
        version_number=measured.version_number,
        window_seconds=measured.window_seconds,
        measures=(
            _measure(RuleName.FIT_DEGRADATION, report.fit_degradation),
            _measure(RuleName.MIX_SHIFT, report.mix_shift),
            _measure(RuleName.UNION_SURPRISE, report.union_surprise),
        ),
        refit_decision="",
        occupancy=tuple(measured.recent.occupancy().tolist()),
        reference_occupancy=tuple(measured.reference.occupancy().tolist()),
    )


def _measure(name: RuleName, found: MeasuredDrift) -> DriftMeasure:
    return DriftMeasure(
        name=name, verdict=found.verdict, n=found.n, value=found.value, threshold=found.threshold
    )


def _decide_refit(
    change: Change, fleet: str, measured: MeasuredTraffic, check: DriftCheck, settings: Settings
) -> str:
    """Decide, and start the refit; return the decision in words."""
    session = change.session
    history = _history(session, fleet, check, change.now)
    began_at = drift_began_at(history.checks)
    # The check before the first one in drift found none, so the drift is hardly older than one period.
    since = (began_at or change.now) - timedelta(seconds=settings.drift_check_seconds)
    limits = RefitLimits(
        cooldown_seconds=settings.refit_cooldown_seconds,
        minimum_samples=settings.refit_minimum_samples,
        max_per_day=settings.refits_per_day,
    )
    n_samples = samples.count_counts(session, fleet, SampleFilter(since=since))
    decision = decide(measured.report, history, limits, n_samples=n_samples, now=change.now)
    if not decision.should_refit:
        return f"{decision.reason}: {decision.explanation}"
    try:
        run_id = _start_refit(change, fleet, measured, since, decision.explanation, settings)
    except (RefusedRequest, EldrError) as error:
        return f"refused: {error}"
    return f"{decision.reason}: run {run_id} on {n_samples} samples; {decision.explanation}"


def _history(session: WriteSession, fleet: str, check: DriftCheck, now: datetime) -> RefitHistory:
    origin = VersionOrigin.DRIFT_REFIT
    newest = calibration_runs.find_newest(session, fleet, origin)
    past = drift_checks.list_checks(session, fleet, version_id=check.version_id, limit=HISTORY)
    return RefitHistory(
        last_refit_at=None if newest is None else newest.created_at,
        refits_today=calibration_runs.count_since(session, fleet, origin, now - A_DAY),
        is_run_open=calibration_runs.find_open(session, fleet) is not None,
        checks=tuple((each.at, _fit_verdict(each)) for each in (check, *past)),
    )


def _fit_verdict(check: DriftCheck) -> DriftVerdict:
    return next(
        DriftVerdict(each.verdict) for each in check.measures if each.name == RuleName.FIT_DEGRADATION
    )


def _start_refit(
    change: Change,
    fleet: str,
    measured: MeasuredTraffic,
    since: datetime,
    explanation: str,
    settings: Settings,
) -> str:
    active = versions.find_version(change.session, fleet, measured.version_id)
    assert active is not None, "versions are never removed"
    command = StartCalibration(
        reason=f"version {active.number} drifted: {explanation}",
        since=since,
        n_clusters=active.n_centroids,
        transform=active.transform,
    )
    return start_calibration(change, fleet, command, settings, VersionOrigin.DRIFT_REFIT).id


def _readings(measured: MeasuredTraffic) -> list[Reading]:
    report, number = measured.report, measured.version_number
    fit, mix, union = report.fit_degradation, report.mix_shift, report.union_surprise
    return [
        _reading(
            RuleName.FIT_DEGRADATION,
            fit,
            "10 % of requests are no more than {value:.3f} similar to their centroid of version "
            f"{number}; the bound is {{threshold:.3f}}",
            is_low_bad=True,
        ),
        _reading(
            RuleName.MIX_SHIFT,
            mix,
            "the shares of the clusters moved by {value:.3f} (PSI); the bound is {threshold:.3f}",
        ),
        _reading(
            RuleName.UNION_SURPRISE,
            union,
            f"steps of {union.subject or 'a worker'} load {{value:.2f}} times the experts predicted; "
            "the bound is {threshold:.2f}",
        ),
    ]


def _reading(rule: RuleName, found: MeasuredDrift, words: str, *, is_low_bad: bool = False) -> Reading:
    if found.value is None or found.threshold is None:
        return Reading(
            rule=rule, value=None, n=found.n, fire_threshold=0.0, clear_threshold=0.0,
            summary=f"insufficient data, n = {found.n}", is_low_bad=is_low_bad,
        )  # fmt: skip
    margin = 1 + CLEAR_MARGIN if is_low_bad else 1 - CLEAR_MARGIN
    return Reading(
        rule=rule,
        value=found.value,
        n=found.n,
        fire_threshold=found.threshold,
        clear_threshold=found.threshold * margin,
        summary=words.format(value=found.value, threshold=found.threshold),
        is_low_bad=is_low_bad,
    )
