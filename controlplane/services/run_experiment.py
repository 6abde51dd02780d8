"""Switchback experiments: start one, stop it, end it when its pairs are done, tell what it measured."""

import math
from collections import defaultdict
from datetime import UTC, datetime, timedelta

from controlplane.domain.experiment_effects import complete_pairs, measure_effects, measure_windows
from controlplane.domain.limits import check_between
from controlplane.domain.metric_series import LATEST_SECONDS, SeriesTotals, SubjectKind, sum_totals
from controlplane.domain.pages import Page
from controlplane.domain.reasons import check_reason
from controlplane.domain.routing_settings import POLICIES
from controlplane.domain.telemetry import (
    Experiment,
    ExperimentState,
    ExperimentWindow,
    StartExperiment,
    StopExperiment,
)
from controlplane.errors import Conflict, InvalidField, NotFound
from controlplane.services.manage_fleets import get_fleet, lock_fleet
from controlplane.services.record_change import Change
from controlplane.settings import Settings
from controlplane.storage.database import ReadSession
from controlplane.storage.models.metadata import new_id
from controlplane.storage.models.telemetry import ExperimentRow
from controlplane.storage.models.versions import SettingsRevisionRow
from controlplane.storage.repositories import (
    experiments,
    fleets,
    metric_rows,
    running_experiments,
    settings_revisions,
    versions,
)

# All routers poll the routing config within so many seconds.
LEAD_SECONDS = 3
MOST_PAIRS = 500


def start_experiment(change: Change, fleet: str, command: StartExperiment) -> Experiment:
    """Let the live settings and a control take turns, from a time by which all routers know of it."""
    session = change.session
    lock_fleet(session, fleet)
    _check(command)
    running = running_experiments.find_running(session, fleet)
    if running is not None:
        raise Conflict(f"experiment {running.id} runs until {running.ends_at.isoformat()}: stop it first")
    active = versions.find_active(session, fleet)
    if active is None:
        raise Conflict(
            f"fleet {fleet!r} has no active version whose effect could be measured: promote one first"
        )
    live = settings_revisions.current_revision(session, fleet)
    if live.policy == command.control_policy:
        limit = f"another policy than the live one, {live.policy}"
        raise InvalidField(field="control_policy", value=command.control_policy, limit=limit)
    row = _to_row(change, fleet, command, active.id, live)
    experiments.add_experiment(session, row)
    fleets.next_generation(session, fleet, cause=f"experiment {row.id} starts", now=change.now)
    return _audited(change, row, "start", command.reason, None)


def stop_experiment(change: Change, fleet: str, experiment_id: str, command: StopExperiment) -> Experiment:
    """End an experiment early; the windows it had are kept."""
    check_reason(command.reason)
    lock_fleet(change.session, fleet)
    row = _get_row(change.session, fleet, experiment_id)
    if row.state != ExperimentState.RUNNING:
        raise Conflict(f"experiment {experiment_id} is {row.state} already")
    fleets.next_generation(change.session, fleet, cause=f"experiment {row.id} stopped", now=change.now)
    return _stop(change, row, command.reason)


def stop_running(change: Change, fleet: str, reason: str) -> None:
    """End the experiment of a locked fleet, if one runs, within another change and its generation."""
    row = running_experiments.find_running(change.session, fleet)
    if row is not None:
        _stop(change, row, reason)


def settle_experiments(change: Change, fleet: str, settings: Settings) -> list[Experiment]:
    """End experiments whose pairs are done, once late metrics have had their time.

    Effects are final at once if every pair is measured, or else when further metrics would come too late to
    be taken; until then they are worked out when asked for.
    """
    lock_fleet(change.session, fleet)
    settled = []
    for row in experiments.list_unsettled(change.session, fleet):
        if not _is_due(row, change.now, settings):
            continue
        is_running = row.state == ExperimentState.RUNNING
        before = to_experiment(change.session, row, change.now)
        if not is_running or before.n_pairs_done == row.n_pairs:
            experiments.write_effects(row, before.effects)
        if is_running:
            row.state = ExperimentState.FINISHED
            row.finished_at = change.now
            cause = f"experiment {row.id} finished"
            fleets.next_generation(change.session, fleet, cause=cause, now=change.now)
        reason = f"{before.n_pairs_done} of {row.n_pairs} pairs measured"
        settled.append(_audited(change, row, "finish" if is_running else "settle", reason, before))
    return settled


def has_due_experiment(session: ReadSession, fleet: str, now: datetime, settings: Settings) -> bool:
    """Whether `settle_experiments` has something to do."""
    return any(_is_due(row, now, settings) for row in experiments.list_unsettled(session, fleet))


def get_experiment(session: ReadSession, fleet: str, experiment_id: str, now: datetime) -> Experiment:
    """Find an experiment with what it has measured so far, or refuse."""
    get_fleet(session, fleet)
    return to_experiment(session, _get_row(session, fleet, experiment_id), now)


def list_experiments(
    session: ReadSession, fleet: str, cursor: str | None, limit: int, now: datetime
) -> Page[Experiment]:
    """List experiments, newest first."""
    get_fleet(session, fleet)
    rows = experiments.list_rows(session, fleet, before_id=cursor, limit=limit + 1)
    items = tuple(to_experiment(session, row, now) for row in rows[:limit])
    return Page(items=items, next_cursor=rows[limit - 1].id if len(rows) > limit else None)


def to_experiment(session: ReadSession, row: ExperimentRow, now: datetime) -> Experiment:
    """Value of a row, with its windows and effects as measured so far."""
    until = now if row.finished_at is None else min(now, row.finished_at)
    windows = _windows(session, row)
    pairs = complete_pairs(experiments.span_of(row), windows, until)
    effects = experiments.read_effects(row)
    return Experiment(
        id=row.id,
        fleet=row.fleet,
        state=ExperimentState(row.state),
        treatment_policy=row.treatment_policy,
        treatment_version_number=experiments.treatment_number(session, row),
        control_policy=row.control_policy,
        n_pairs=row.n_pairs,
        n_pairs_done=len(pairs),
        window_seconds=row.window_seconds,
        washout_seconds=row.washout_seconds,
        seed=row.seed,
        starts_at=row.starts_at,
        ends_at=row.ends_at,
        actor=row.actor,
        reason=row.reason,
        effects=measure_effects(pairs) if effects is None else effects,
        windows=windows,
    )


def first_boundary(now: datetime, window_seconds: int) -> datetime:
    """Start of the first pair of windows that all routers know of in time; pairs are counted from the epoch.

    Examples
    --------
    >>> first_boundary(datetime(2026, 3, 1, 12, 0, 58, tzinfo=UTC), 30).strftime("%H:%M:%S")
    '12:02:00'
    """
    pair_seconds = 2 * window_seconds
    seconds = math.ceil((now.timestamp() + LEAD_SECONDS) / pair_seconds) * pair_seconds
    return datetime.fromtimestamp(seconds, UTC)


def _stop(change: Change, row: ExperimentRow, reason: str) -> Experiment:
    before = to_experiment(change.session, row, change.now)
    row.state = ExperimentState.STOPPED
    row.finished_at = change.now
    return _audited(change, row, "stop", reason, before)


def _is_due(row: ExperimentRow, now: datetime, settings: Settings) -> bool:
    if row.state == ExperimentState.RUNNING:
        return now >= row.ends_at + timedelta(seconds=settings.experiment_settle_seconds)
    return now >= (row.finished_at or row.ends_at) + timedelta(seconds=LATEST_SECONDS)


def _windows(session: ReadSession, row: ExperimentRow) -> tuple[ExperimentWindow, ...]:
    parts: defaultdict[int, list[SeriesTotals]] = defaultdict(list)
    for series in metric_rows.read_experiment(session, row.fleet, row.id, SubjectKind.WORKER):
        parts[series.key.experiment_window].append(series.totals)
    totals_of = {index: sum_totals(found) for index, found in parts.items()}
    return measure_windows(experiments.span_of(row), totals_of)


def _check(command: StartExperiment) -> None:
    check_reason(command.reason)
    if command.control_policy not in POLICIES:
        limit = f"one of {', '.join(POLICIES)}"
        raise InvalidField(field="control_policy", value=command.control_policy, limit=limit)
    check_between("n_pairs", command.n_pairs, 1, MOST_PAIRS)
    check_between("window_seconds", command.window_seconds, 5, 3600)
    check_between("washout_seconds", command.washout_seconds, 0, command.window_seconds - 1)
    check_between("seed", command.seed, 0, 2**31 - 1)


def _to_row(
    change: Change, fleet: str, command: StartExperiment, version_id: str, live: SettingsRevisionRow
) -> ExperimentRow:
    starts_at = first_boundary(change.now, command.window_seconds)
    return ExperimentRow(
        id=new_id(),
        fleet=fleet,
        state=ExperimentState.RUNNING,
        treatment_policy=live.policy,
        treatment_tau=live.tau,
        treatment_load_cap=live.load_cap,
        treatment_version_id=version_id,
        control_policy=command.control_policy,
        n_pairs=command.n_pairs,
        window_seconds=command.window_seconds,
        washout_seconds=command.washout_seconds,
        seed=command.seed,
        starts_at=starts_at,
        ends_at=starts_at + timedelta(seconds=2 * command.n_pairs * command.window_seconds),
        actor=change.actor,
        reason=command.reason,
    )


def _get_row(session: ReadSession, fleet: str, experiment_id: str) -> ExperimentRow:
    row = experiments.find_experiment(session, fleet, experiment_id)
    if row is None:
        raise NotFound(resource="experiment", name=experiment_id)
    return row


def _audited(
    change: Change, row: ExperimentRow, action: str, reason: str, before: Experiment | None
) -> Experiment:
    change.session.flush()
    after = to_experiment(change.session, row, change.now)
    change.audit(
        action=action,
        resource="experiment",
        resource_id=row.id,
        fleet=row.fleet,
        reason=reason,
        before=before,
        after=after,
    )
    return after
