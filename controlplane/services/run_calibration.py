"""Carry out one claimed calibration: trace, fit, report, judgement, references; stored in one transaction."""

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from controlplane.domain.calibrations import RunState
from controlplane.domain.promotion_gate import GateComparison
from controlplane.errors import ControlPlaneError, NotReady
from controlplane.services.build_reference import build_drift_reference, build_projection
from controlplane.services.calibrate import end_run
from controlplane.services.judge_version import Grounds, Trial, compare, load_stored_trace
from controlplane.services.keep_reference import write_drift, write_projection
from controlplane.services.keep_trace_pack import get_trace_pack
from controlplane.services.keep_version import keep_version, load_version
from controlplane.services.record_change import Change
from controlplane.services.sample_traces import MOST_REQUESTS, LiveTraffic, least_requests, sample_trace
from controlplane.settings import Settings
from controlplane.storage.database import Database, WriteSession
from controlplane.storage.models.calibrations import CalibrationRunRow
from controlplane.storage.repositories import calibration_runs, version_references, versions
from eldr_runtime.calibration import (
    CalibrationResult,
    CalibrationSettings,
    CalibrationStage,
    calibrate,
    fit_version,
)
from eldr_runtime.centroid_version import CentroidVersion, VersionOrigin
from eldr_runtime.errors import Cancelled, EldrError
from eldr_runtime.expert_trace import ExpertTrace
from eldr_runtime.held_out_union import split_half
from eldr_runtime.signature import TransformName

logger = logging.getLogger(__name__)

JUDGE_STAGE = "judge"
# Where each stage begins and how much of the whole it is, as measured on 1,000 requests of 48 x 128.
STAGES: dict[str, tuple[float, float]] = {
    CalibrationStage.CHECK: (0.0, 0.01),
    CalibrationStage.WEIGHTS: (0.01, 0.01),
    CalibrationStage.LAYERS: (0.02, 0.08),
    CalibrationStage.CLUSTERS: (0.1, 0.02),
    CalibrationStage.QUALITY: (0.12, 0.1),
    CalibrationStage.HELD_OUT: (0.22, 0.68),
    JUDGE_STAGE: (0.9, 0.1),
}
PROGRESS_SECONDS = 0.5
# Rho has an interval of a hundredth from so many pairs, and a small trace has no more.
MOST_PAIRS = 30_000


class Superseded(ControlPlaneError):
    """The run is no longer this process's: another one has claimed it, or it has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedRun:
    """A run as this process claimed it."""

    run_id: str
    epoch: int


class Progress:
    """Writes how far the run is, and finds out whether it shall stop."""

    def __init__(self, database: Database, claimed: ClaimedRun, clock: Callable[[], datetime]) -> None:
        self.database = database
        self.claimed = claimed
        self.clock = clock
        self._stage = ""
        self._next_write = 0.0

    def __call__(self, stage: str, share: float) -> None:
        """Note progress, at most twice a second; raise `Cancelled` or `Superseded` to stop the work."""
        if stage == self._stage and time.monotonic() < self._next_write:
            return
        self._stage = stage
        self._next_write = time.monotonic() + PROGRESS_SECONDS
        begin, length = STAGES[stage]
        try:
            self.beat(stage, begin + length * share)
        except NotReady as error:  # the work need not wait for a busy database
            logger.warning("progress of run %s is not noted: %s", self.claimed.run_id, error)

    def beat(self, stage: str | None = None, share: float | None = None) -> None:
        """Give a sign of life."""
        with self.database.write() as session:
            shall_stop = calibration_runs.note_progress(
                session, self.claimed.run_id, self.claimed.epoch, self.clock(), stage=stage, share=share
            )
        if shall_stop is None:
            raise Superseded(f"run {self.claimed.run_id} is no longer of epoch {self.claimed.epoch}")
        if shall_stop:
            raise Cancelled("the run was cancelled")


def run_calibration(
    database: Database, claimed: ClaimedRun, settings: Settings, clock: Callable[[], datetime]
) -> None:
    """Do the work; how it ends is in the row. `Superseded` is raised on, after which nothing is written."""
    progress = Progress(database, claimed, clock)
    try:
        outcome = _work(database, claimed, settings, progress, clock)
    except Cancelled:
        _end(database, claimed, clock(), RunState.CANCELLED, None)
    except (EldrError, ControlPlaneError) as error:
        if isinstance(error, Superseded):
            raise
        _end(database, claimed, clock(), RunState.FAILED, str(error))
    else:
        _store(database, claimed, clock(), outcome)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Outcome:
    result: CalibrationResult
    comparisons: tuple[GateComparison, ...]
    projection: bytes
    drift: bytes | None


def _work(
    database: Database,
    claimed: ClaimedRun,
    settings: Settings,
    progress: Progress,
    clock: Callable[[], datetime],
) -> _Outcome:
    with database.read() as session:
        run = calibration_runs.to_run(session.get_one(CalibrationRunRow, claimed.run_id))
        since = session.get_one(CalibrationRunRow, claimed.run_id).live_since
        if run.trace_pack_id is not None:
            pack = get_trace_pack(session, run.fleet, run.trace_pack_id)
            trace, name = load_stored_trace(session, pack), f"trace pack {pack.name!r}"
        else:
            traffic = LiveTraffic(since=since, limit=run.n_live_requests or MOST_REQUESTS)
            trace = sample_trace(session, run.fleet, traffic, least_requests(run.n_clusters, settings))
            name = "live traffic"
        active_row = versions.find_active(session, run.fleet)
        active = None if active_row is None else load_version(session, active_row)
    wanted = CalibrationSettings(
        n_clusters=run.n_clusters,
        transform=TransformName(run.transform),
        seed=run.seed,
        select_layers=trace.has_decode,
        n_pairs=MOST_PAIRS,
        n_splits=settings.calibration_splits,
    )
    inherit = active if not trace.has_decode and _can_inherit(active) else None
    result = calibrate(
        trace,
        wanted,
        progress,
        inherit=inherit,
        origin=VersionOrigin(run.origin),
        parent_hash=active.content_hash if active is not None and run.is_refit else None,
    )
    progress(JUDGE_STAGE, 0.0)
    is_live = run.trace_pack_id is None
    return _Outcome(
        result=result,
        comparisons=_judge(trace, name, result.version, active, wanted, inherit, clock()),
        projection=write_projection(build_projection(trace, result)),
        drift=write_drift(build_drift_reference(trace, result)) if is_live else None,
    )


def _can_inherit(active: CentroidVersion | None) -> bool:
    return active is not None and not active.transform.name.needs_gates


def _judge(
    trace: ExpertTrace,
    name: str,
    version: CentroidVersion,
    active: CentroidVersion | None,
    wanted: CalibrationSettings,
    inherit: CentroidVersion | None,
    now: datetime,
) -> tuple[GateComparison, ...]:
    """Compare with the active version on each half of the requests, by a twin fitted on the other half.

    The version itself is fitted on all of them; its twins, on half as many each, are no better than it.
    """
    if active is None or active.content_hash == version.content_hash or not trace.has_decode:
        return ()
    covered, _ = trace.without_uncovered()
    halves = [covered.select(half) for half in split_half(covered.labels, len(covered), wanted.seed)]
    if min(len(half) for half in halves) < wanted.n_clusters:
        return ()
    trials = [
        Trial(candidate=fit_version(fitted, wanted, _Silent(), inherit=inherit), trace=held_out)
        for fitted, held_out in (halves, halves[::-1])
    ]
    grounds = Grounds(name=f"{name}, each half by a fit on the other", is_held_out=True)
    comparison = compare(trials, active, grounds, now)
    return () if comparison is None else (comparison,)


class _Silent:
    """Reports to nobody: the twin's stages are not those of the run."""

    def __call__(self, stage: CalibrationStage, share: float) -> None:
        return


def _store(database: Database, claimed: ClaimedRun, now: datetime, outcome: _Outcome) -> None:
    """Write version, report, judgement and references, if the run is still this process's."""
    result = outcome.result
    with database.write() as session:
        row = _lock(session, claimed)
        if row.is_cancel_requested:
            end_run(_change(session, row, now), row, RunState.CANCELLED, error=None)
            return
        change = _change(session, row, now)
        same = versions.find_by_hash(session, row.fleet, result.version.content_hash)
        if same is None:
            reason = f"calibration run {row.id}: {row.reason}"[:1000]
            kept = keep_version(
                change, row.fleet, result.version, reason=reason, calibration_run_id=row.id,
                comparisons=outcome.comparisons,
            )  # fmt: skip
            row.version_id = kept.id
            _note_quality(session, row.fleet, kept.id, result)
            version_references.keep_projection(session, kept.id, outcome.projection)
            if outcome.drift is not None:
                version_references.keep_drift(session, kept.id, outcome.drift)
        else:  # the same fit of the same requests
            row.version_id = same.id
        calibration_runs.add_report(session, row.id, json.dumps(result.report.to_json()))
        row.stage, row.progress_share = None, 1.0
        end_run(change, row, RunState.SUCCEEDED, error=None)


def _note_quality(session: WriteSession, fleet: str, version_id: str, result: CalibrationResult) -> None:
    """Note what the report found out beside the version, whose content does not depend on it."""
    row = versions.find_version(session, fleet, version_id)
    assert row is not None, "stored in this transaction"
    report = result.report
    judged = report.held_out_at(report.control_batch_size) or next(iter(report.held_out), None)
    row.held_out_percent = None if judged is None else judged.mean_percent
    row.rho = None if report.rho is None else report.rho.rho
    session.flush()


def fail_run(database: Database, claimed: ClaimedRun, now: datetime, error: str) -> None:
    """Note that a run failed for a reason nobody expected."""
    _end(database, claimed, now, RunState.FAILED, error)


def _end(database: Database, claimed: ClaimedRun, now: datetime, state: RunState, error: str | None) -> None:
    with database.write() as session:
        row = _lock(session, claimed)
        end_run(_change(session, row, now), row, state, error=error)


def _lock(session: WriteSession, claimed: ClaimedRun) -> CalibrationRunRow:
    row = calibration_runs.lock_run(session, claimed.run_id)
    if row is None or row.epoch != claimed.epoch or row.state != RunState.RUNNING:
        raise Superseded(f"run {claimed.run_id} is no longer of epoch {claimed.epoch}")
    return row


def _change(session: WriteSession, row: CalibrationRunRow, now: datetime) -> Change:
    return Change(session=session, actor=row.actor, request_id=f"run {row.id}", now=now)
