"""Calibration runs, which are job rows: queued, claimed under an epoch, beating, ended once."""

from datetime import datetime

from sqlalchemy import exists, func, select, update
from sqlalchemy.orm import aliased

from controlplane.domain.calibrations import CalibrationRun, RunState
from controlplane.storage.database import ReadSession, WriteSession
from controlplane.storage.models.calibrations import CalibrationReportRow, CalibrationRunRow

OPEN_STATES = (RunState.QUEUED, RunState.RUNNING)


def add_run(session: WriteSession, row: CalibrationRunRow) -> None:
    """Add a run."""
    session.add(row)
    session.flush()


def find_run(session: ReadSession, fleet: str, run_id: str) -> CalibrationRunRow | None:
    """Find a run of a fleet."""
    row = session.get(CalibrationRunRow, run_id, populate_existing=True)
    return row if row is not None and row.fleet == fleet else None


def lock_run(session: WriteSession, run_id: str) -> CalibrationRunRow | None:
    """Find a run and keep others from changing it until this transaction ends."""
    return session.get(CalibrationRunRow, run_id, with_for_update=True, populate_existing=True)


def list_runs(session: ReadSession, fleet: str, *, before_id: str | None, limit: int) -> list[CalibrationRun]:
    """List runs of a fleet, newest first."""
    statement = select(CalibrationRunRow).where(CalibrationRunRow.fleet == fleet)
    if before_id is not None:
        statement = statement.where(CalibrationRunRow.id < before_id)
    rows = session.scalars(statement.order_by(CalibrationRunRow.id.desc()).limit(limit))
    return [to_run(row) for row in rows]


def find_open(session: ReadSession, fleet: str) -> CalibrationRunRow | None:
    """Find the run of a fleet that is queued or running; there is at most one."""
    statement = select(CalibrationRunRow).where(
        CalibrationRunRow.fleet == fleet, CalibrationRunRow.state.in_(OPEN_STATES)
    )
    return session.scalars(statement.order_by(CalibrationRunRow.id).limit(1)).one_or_none()


def find_newest(session: ReadSession, fleet: str, origin: str) -> CalibrationRunRow | None:
    """Find the newest run of a fleet of one origin."""
    statement = select(CalibrationRunRow).where(
        CalibrationRunRow.fleet == fleet, CalibrationRunRow.origin == origin
    )
    return session.scalars(statement.order_by(CalibrationRunRow.id.desc()).limit(1)).one_or_none()


def count_since(session: ReadSession, fleet: str, origin: str, since: datetime) -> int:
    """Count the runs of one origin that were queued since a time."""
    statement = select(func.count()).where(
        CalibrationRunRow.fleet == fleet,
        CalibrationRunRow.origin == origin,
        CalibrationRunRow.created_at >= since,
    )
    return session.scalars(statement).one()


def next_queued(session: WriteSession) -> CalibrationRunRow | None:
    """Find the oldest queued run of a fleet that has none running, and lock it."""
    running = aliased(CalibrationRunRow)
    statement = (
        select(CalibrationRunRow)
        .where(
            CalibrationRunRow.state == RunState.QUEUED,
            ~exists().where(running.fleet == CalibrationRunRow.fleet, running.state == RunState.RUNNING),
        )
        .order_by(CalibrationRunRow.id)
        .limit(1)
        .with_for_update(of=CalibrationRunRow)
    )
    return session.scalars(statement).one_or_none()


def list_silent(session: ReadSession, before: datetime) -> list[CalibrationRunRow]:
    """List the running runs that have given no sign of life since a time."""
    statement = select(CalibrationRunRow).where(
        CalibrationRunRow.state == RunState.RUNNING, CalibrationRunRow.heartbeat_at < before
    )
    return list(session.scalars(statement.order_by(CalibrationRunRow.id)))


def note_progress(
    session: WriteSession, run_id: str, epoch: int, now: datetime, *, stage: str | None, share: float | None
) -> bool | None:
    """Note a sign of life, and how far a run is; return whether it shall stop, None if it is not ours."""
    values: dict[str, object] = {"heartbeat_at": now}
    if stage is not None and share is not None:
        values |= {"stage": stage, "progress_share": share}
    statement = (
        update(CalibrationRunRow)
        .where(
            CalibrationRunRow.id == run_id,
            CalibrationRunRow.epoch == epoch,
            CalibrationRunRow.state == RunState.RUNNING,
        )
        .values(values)
        .returning(CalibrationRunRow.is_cancel_requested)
        .execution_options(synchronize_session=False)
    )
    return session.scalars(statement).one_or_none()


def add_report(session: WriteSession, run_id: str, report: str) -> None:
    """Store the report of a run as JSON text."""
    session.merge(CalibrationReportRow(calibration_run_id=run_id, report=report))
    session.flush()


def find_report(session: ReadSession, run_id: str) -> str | None:
    """Find the report of a run."""
    row = session.get(CalibrationReportRow, run_id)
    return None if row is None else row.report


def to_run(row: CalibrationRunRow) -> CalibrationRun:
    """Value of a row."""
    return CalibrationRun(
        id=row.id,
        fleet=row.fleet,
        state=RunState(row.state),
        stage=row.stage,
        progress_share=row.progress_share,
        origin=row.origin,
        trace_pack_id=row.trace_pack_id,
        n_live_requests=row.n_live_requests,
        n_clusters=row.n_clusters,
        transform=row.transform,
        seed=row.seed,
        version_id=row.version_id,
        error=row.error,
        actor=row.actor,
        reason=row.reason,
        created_at=row.created_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
    )
