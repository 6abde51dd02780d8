"""What the background work does, as plain functions of what they work on; each is called by a timer."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from controlplane.jobs.calibration_processes import CalibrationProcesses
from controlplane.jobs.lease import FencedDatabase
from controlplane.jobs.webhooks import split_urls, webhook_teller
from controlplane.services.answer_once import forget_old_answers
from controlplane.services.measure_traffic import measure_traffic
from controlplane.services.raise_alerts import apply_readings
from controlplane.services.renew_lease import expire_leases
from controlplane.services.roll_up_metrics import BLOBS_AT_ONCE, forget_old_metrics, roll_up_metrics
from controlplane.services.run_experiment import has_due_experiment, settle_experiments
from controlplane.services.tune_settings import revert_due_settings
from controlplane.services.watch_conditions import CONDITION_RULES, read_conditions
from controlplane.services.watch_drift import keep_check
from controlplane.settings import Settings
from controlplane.storage.repositories import (
    alerts,
    drift_checks,
    fleets,
    metric_blobs,
    samples,
    settings_revisions,
    versions,
    workers,
)

SYSTEM = "system"
CONDITION_SECONDS = 5.0
KEEP_CHECKS = timedelta(days=90)
KEEP_ALERTS = timedelta(days=400)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """One turn of the background work, under one epoch of the lease."""

    fenced: FencedDatabase
    settings: Settings
    processes: CalibrationProcesses
    now: datetime

    def fleet_names(self) -> list[str]:
        """Name every fleet."""
        with self.fenced.database.read() as session:
            return fleets.all_fleet_names(session)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A function and how often it is called."""

    name: str
    period_seconds: float
    run: Callable[[Tick], None]


def all_tasks(settings: Settings) -> tuple[Task, ...]:
    """List all tasks."""
    return (
        Task(name="worker leases", period_seconds=1.0, run=note_lost_workers),
        Task(name="reverts", period_seconds=1.0, run=revert_settings),
        Task(name="metrics", period_seconds=1.0, run=roll_up),
        Task(name="experiments", period_seconds=1.0, run=end_experiments),
        Task(name="calibrations", period_seconds=1.0, run=look_after_calibrations),
        Task(name="drift", period_seconds=settings.drift_check_seconds, run=check_drift),
        Task(name="alerts", period_seconds=CONDITION_SECONDS, run=check_conditions),
        Task(name="webhooks", period_seconds=CONDITION_SECONDS, run=tell_of_alerts),
        Task(name="retention", period_seconds=60.0, run=forget_old),
    )


def note_lost_workers(tick: Tick) -> None:
    """Note the workers whose lease ran out."""
    with tick.fenced.database.read() as session:
        if not workers.fleets_with_expired(session, tick.now):
            return
    with tick.fenced.change(SYSTEM, tick.now) as change:
        expire_leases(change)


def revert_settings(tick: Tick) -> None:
    """Take back settings whose time is over."""
    with tick.fenced.database.read() as session:
        if not settings_revisions.due_reverts(session, tick.now):
            return
    with tick.fenced.change(SYSTEM, tick.now) as change:
        revert_due_settings(change)


def roll_up(tick: Tick) -> None:
    """Roll up the metrics that came in."""
    for fleet in _fleets_with(tick, lambda fleet: _has_blobs(tick, fleet)):
        n_rolled = BLOBS_AT_ONCE
        while n_rolled == BLOBS_AT_ONCE:
            with tick.fenced.change(SYSTEM, tick.now) as change:
                n_rolled = roll_up_metrics(change, fleet)


def end_experiments(tick: Tick) -> None:
    """End the experiments whose pairs are done."""
    for fleet in _fleets_with(tick, lambda fleet: _has_due_experiment(tick, fleet)):
        with tick.fenced.change("system:experiments", tick.now) as change:
            settle_experiments(change, fleet, tick.settings)


def look_after_calibrations(tick: Tick) -> None:
    """Start queued calibrations, and put back those that lost their process."""
    tick.processes.tick(tick.fenced, tick.now)


def check_drift(tick: Tick) -> None:
    """Measure the drift of every fleet that has an active version."""
    for fleet in _fleets_with(tick, lambda fleet: _has_active(tick, fleet)):
        with tick.fenced.database.read() as session:
            measured = measure_traffic(session, fleet, tick.settings, tick.now)
        with tick.fenced.change("system:drift", tick.now) as change:
            keep_check(change, fleet, measured, tick.settings)


def check_conditions(tick: Tick) -> None:
    """Evaluate the other alert rules."""
    for fleet in tick.fleet_names():
        with tick.fenced.database.read() as session:
            readings = read_conditions(session, fleet, tick.settings, tick.now)
        with tick.fenced.change("system:alerts", tick.now) as change:
            apply_readings(change, fleet, CONDITION_RULES, readings)


def tell_of_alerts(tick: Tick) -> None:
    """Tell the webhooks of alerts that fire and are not silenced."""
    urls = split_urls(tick.settings.notify_urls)
    if not urls:
        return
    tell = webhook_teller(urls)
    for fleet in tick.fleet_names():
        with tick.fenced.database.read() as session:
            firing = [alerts.to_alert(row) for row in alerts.list_to_notify(session, fleet, tick.now)]
        told = [alert.id for alert in firing if tell(alert)]
        if told:
            with tick.fenced.change(SYSTEM, tick.now) as change:
                alerts.mark_notified(change.session, told, tick.now)


def forget_old(tick: Tick) -> None:
    """Remove what is past its retention."""
    with tick.fenced.change(SYSTEM, tick.now) as change:
        forget_old_answers(change.session, tick.now, tick.settings.idempotency_seconds)
    for fleet in tick.fleet_names():
        with tick.fenced.change(SYSTEM, tick.now) as change:
            row = fleets.find_fleet(change.session, fleet)
            assert row is not None, "fleets are never removed"
            samples.forget_samples(change.session, fleet, tick.now - timedelta(days=row.retention_days))
            samples.forget_counts_beyond(change.session, fleet, tick.settings.samples_with_counts)
            forget_old_metrics(change, fleet)
            drift_checks.forget_checks(change.session, fleet, tick.now - KEEP_CHECKS)
            alerts.forget_closed(change.session, fleet, tick.now - KEEP_ALERTS)


def _fleets_with(tick: Tick, has_work: Callable[[str], bool]) -> Iterator[str]:
    return (fleet for fleet in tick.fleet_names() if has_work(fleet))


def _has_blobs(tick: Tick, fleet: str) -> bool:
    with tick.fenced.database.read() as session:
        return metric_blobs.has_pending(session, fleet)


def _has_active(tick: Tick, fleet: str) -> bool:
    with tick.fenced.database.read() as session:
        return versions.find_active(session, fleet) is not None


def _has_due_experiment(tick: Tick, fleet: str) -> bool:
    with tick.fenced.database.read() as session:
        return has_due_experiment(session, fleet, tick.now, tick.settings)
