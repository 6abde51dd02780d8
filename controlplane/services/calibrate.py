"""Queue calibrations, stop them, tell how they went. The work itself is `run_calibration`'s."""

from datetime import timedelta

from controlplane.domain.calibrations import CalibrationRun, RunState, StartCalibration
from controlplane.domain.fleets import WorkerState
from controlplane.domain.limits import check_between
from controlplane.domain.pages import Page, to_page
from controlplane.domain.reasons import check_reason
from controlplane.errors import Conflict, InvalidField, NotFound
from controlplane.services.keep_trace_pack import get_trace_pack
from controlplane.services.manage_fleets import get_fleet, lock_fleet
from controlplane.services.record_change import Change
from controlplane.services.sample_traces import MOST_REQUESTS, LiveTraffic, check_traffic
from controlplane.settings import Settings
from controlplane.storage.database import ReadSession
from controlplane.storage.models.calibrations import CalibrationRunRow
from controlplane.storage.models.metadata import new_id
from controlplane.storage.repositories import calibration_runs, workers
from eldr_runtime.centroid_version import VersionOrigin
from eldr_runtime.routing_config import WorkerRole
from eldr_runtime.signature import TransformName

MOST_CLUSTERS = 1024
MOST_ATTEMPTS = 2
SINCE_AHEAD = timedelta(seconds=60)
TRANSFORMS = tuple(name.value for name in TransformName)
LIVE_TRANSFORMS = tuple(name.value for name in TransformName if not name.needs_gates)


def start_calibration(
    change: Change,
    fleet: str,
    command: StartCalibration,
    settings: Settings,
    origin: VersionOrigin = VersionOrigin.CALIBRATION,
) -> CalibrationRun:
    """Queue a run; one a fleet at a time. That there is enough to fit on is checked now."""
    session = change.session
    lock_fleet(session, fleet)
    check_reason(command.reason)
    _refuse_second(session, fleet)
    n_clusters = _n_clusters(change, fleet, command)
    row = CalibrationRunRow(
        id=new_id(),
        fleet=fleet,
        state=RunState.QUEUED,
        stage=None,
        progress_share=0.0,
        origin=origin,
        trace_pack_id=command.trace_pack_id,
        n_live_requests=_n_live_requests(change, fleet, command, n_clusters, settings),
        live_since=command.since,
        n_clusters=n_clusters,
        transform=_transform(command),
        seed=_seed(command),
        actor=change.actor,
        reason=command.reason,
        created_at=change.now,
        epoch=0,
        n_attempts=0,
        is_cancel_requested=False,
    )
    calibration_runs.add_run(session, row)
    run = calibration_runs.to_run(row)
    _audit(change, "start", row, command.reason, None)
    return run


def cancel_calibration(change: Change, fleet: str, run_id: str, reason: str) -> CalibrationRun:
    """Stop a run: at once if it is queued, otherwise when it next reports its progress."""
    check_reason(reason)
    get_run(change.session, fleet, run_id)
    row = calibration_runs.lock_run(change.session, run_id)
    assert row is not None, "found above, and never removed"
    if row.state not in calibration_runs.OPEN_STATES:
        raise Conflict(f"calibration run {run_id} has {row.state} already")
    before = calibration_runs.to_run(row)
    row.is_cancel_requested = True
    if row.state == RunState.QUEUED:
        row.state = RunState.CANCELLED
        row.finished_at = change.now
    change.session.flush()
    _audit(change, "cancel", row, reason, before)
    return calibration_runs.to_run(row)


def claim_run(change: Change) -> tuple[str, int] | None:
    """Claim the oldest queued run under a new epoch of its own: a process of an older one writes no more."""
    row = calibration_runs.next_queued(change.session)
    if row is None:
        return None
    before = calibration_runs.to_run(row)
    row.state = RunState.RUNNING
    row.epoch += 1
    row.n_attempts += 1
    row.started_at = change.now
    row.heartbeat_at = change.now
    change.session.flush()
    _audit(change, "claim", row, f"attempt {row.n_attempts}", before)
    return row.id, row.epoch


def release_run(change: Change, run_id: str, epoch: int, why: str) -> None:
    """Put back a run whose process ended without a word: once, and then it has failed."""
    row = calibration_runs.lock_run(change.session, run_id)
    if row is None or row.state != RunState.RUNNING or row.epoch != epoch:
        return
    before = calibration_runs.to_run(row)
    row.stage, row.progress_share = None, 0.0
    if row.is_cancel_requested:
        end_run(change, row, RunState.CANCELLED, error=None)
        return
    if row.n_attempts >= MOST_ATTEMPTS:
        end_run(change, row, RunState.FAILED, error=f"{why}; attempt {row.n_attempts} of {MOST_ATTEMPTS}")
        return
    row.state = RunState.QUEUED
    change.session.flush()
    _audit(change, "requeue", row, why, before)


def end_run(change: Change, row: CalibrationRunRow, state: RunState, *, error: str | None) -> None:
    """Note how a run ended."""
    before = calibration_runs.to_run(row)
    row.state = state
    row.error = error
    row.finished_at = change.now
    change.session.flush()
    verb = {RunState.SUCCEEDED: "succeed", RunState.FAILED: "fail"}.get(state, "cancel")
    _audit(change, verb, row, error or row.reason, before)


def get_run(session: ReadSession, fleet: str, run_id: str) -> CalibrationRun:
    """Find a run, or refuse."""
    get_fleet(session, fleet)
    row = calibration_runs.find_run(session, fleet, run_id)
    if row is None:
        raise NotFound(resource="calibration run", name=run_id)
    return calibration_runs.to_run(row)


def get_report(session: ReadSession, fleet: str, run_id: str) -> str:
    """Find the report of a run as JSON text, or refuse."""
    run = get_run(session, fleet, run_id)
    report = calibration_runs.find_report(session, run_id)
    if report is None:
        raise NotFound(resource=f"report, as the run has state {run.state}, of calibration run", name=run_id)
    return report


def list_runs(session: ReadSession, fleet: str, cursor: str | None, limit: int) -> Page[CalibrationRun]:
    """List runs, newest first."""
    get_fleet(session, fleet)
    found = calibration_runs.list_runs(session, fleet, before_id=cursor, limit=limit + 1)
    return to_page(found, limit, lambda run: run.id)


def _refuse_second(session: ReadSession, fleet: str) -> None:
    other = calibration_runs.find_open(session, fleet)
    if other is not None:
        raise Conflict(
            f"calibration run {other.id} of fleet {fleet!r} is {other.state}: wait for it, or cancel it"
        )


def _n_clusters(change: Change, fleet: str, command: StartCalibration) -> int:
    if command.n_clusters is not None:
        check_between("n_clusters", command.n_clusters, 1, MOST_CLUSTERS)
        return command.n_clusters
    found = workers.list_workers(change.session, fleet, change.now)
    n_ready = sum((each.role, each.state) == (WorkerRole.DECODE, WorkerState.READY) for each in found)
    if n_ready == 0:
        raise InvalidField(field="n_clusters", value=None, limit="given, as no decode worker is ready")
    return n_ready


def _n_live_requests(
    change: Change, fleet: str, command: StartCalibration, n_clusters: int, settings: Settings
) -> int | None:
    if command.trace_pack_id is not None:
        if command.n_live_requests is not None or command.since is not None:
            limit = "left out together with since, where trace_pack_id is given"
            raise InvalidField(field="n_live_requests", value=command.n_live_requests, limit=limit)
        pack = get_trace_pack(change.session, fleet, command.trace_pack_id)
        if pack.n_requests < n_clusters:
            raise InvalidField(
                field="n_clusters",
                value=n_clusters,
                limit=f"at most the {pack.n_requests} requests of the pack",
            )
        return None
    n_most = MOST_REQUESTS if command.n_live_requests is None else command.n_live_requests
    check_between("n_live_requests", n_most, 1, MOST_REQUESTS)
    if command.since is not None and command.since > change.now + SINCE_AHEAD:
        raise InvalidField(field="since", value=command.since.isoformat(), limit="a time that has been")
    traffic = LiveTraffic(since=command.since, limit=n_most)
    return check_traffic(change.session, fleet, traffic, n_clusters, settings)


def _transform(command: StartCalibration) -> str:
    known = TRANSFORMS if command.trace_pack_id is not None else LIVE_TRANSFORMS
    if command.transform not in known:
        raise InvalidField(field="transform", value=command.transform, limit=f"one of {', '.join(known)}")
    return command.transform


def _seed(command: StartCalibration) -> int:
    check_between("seed", command.seed, 0, 2**31 - 1)
    return command.seed


def _audit(
    change: Change, action: str, row: CalibrationRunRow, reason: str, before: CalibrationRun | None
) -> None:
    change.audit(
        action=action,
        resource="calibration_run",
        resource_id=row.id,
        fleet=row.fleet,
        reason=reason[:1000],
        before=before,
        after=calibration_runs.to_run(row),
    )
