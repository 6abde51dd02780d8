"""Experiments. The running one is also asked for by `running_experiments`."""

import json
from datetime import datetime

from sqlalchemy import or_, select

from controlplane.domain.metric_series import ExperimentSpan
from controlplane.domain.telemetry import Effect, ExperimentState
from controlplane.storage.database import ReadSession, WriteSession
from controlplane.storage.models.telemetry import ExperimentRow
from controlplane.storage.models.versions import VersionRow
from eldr_runtime.json_values import from_json_value, to_json_value


def add_experiment(session: WriteSession, row: ExperimentRow) -> None:
    """Add an experiment."""
    session.add(row)
    session.flush()


def find_experiment(session: ReadSession, fleet: str, experiment_id: str) -> ExperimentRow | None:
    """Find an experiment of a fleet."""
    row = session.get(ExperimentRow, experiment_id, populate_existing=True)
    return row if row is not None and row.fleet == fleet else None


def list_rows(session: ReadSession, fleet: str, *, before_id: str | None, limit: int) -> list[ExperimentRow]:
    """List experiments of a fleet, newest first."""
    statement = select(ExperimentRow).where(ExperimentRow.fleet == fleet)
    if before_id is not None:
        statement = statement.where(ExperimentRow.id < before_id)
    return list(session.scalars(statement.order_by(ExperimentRow.id.desc()).limit(limit)))


def list_unsettled(session: ReadSession, fleet: str) -> list[ExperimentRow]:
    """List the experiments that run, or were stopped and have no final effects yet."""
    statement = select(ExperimentRow).where(ExperimentRow.fleet == fleet, ExperimentRow.effects.is_(None))
    return list(session.scalars(statement.order_by(ExperimentRow.id)))


def spans_since(session: ReadSession, fleet: str, since: datetime) -> list[ExperimentSpan]:
    """Windows of the experiments that ran at a time or later."""
    statement = select(ExperimentRow).where(
        ExperimentRow.fleet == fleet,
        or_(ExperimentRow.state == ExperimentState.RUNNING, ExperimentRow.ends_at >= since),
    )
    return [span_of(row) for row in session.scalars(statement)]


def span_of(row: ExperimentRow) -> ExperimentSpan:
    """Windows of an experiment."""
    return ExperimentSpan(
        id=row.id,
        first_window=int(row.starts_at.timestamp()) // row.window_seconds,
        n_pairs=row.n_pairs,
        window_seconds=row.window_seconds,
        washout_seconds=row.washout_seconds,
        seed=row.seed,
    )


def treatment_number(session: ReadSession, row: ExperimentRow) -> int | None:
    """Find the number of the version an experiment treats with."""
    if row.treatment_version_id is None:
        return None
    statement = select(VersionRow.number).where(VersionRow.id == row.treatment_version_id)
    return session.scalars(statement).one()


def read_effects(row: ExperimentRow) -> tuple[Effect, ...] | None:
    """Read the final effects; None before there are."""
    if row.effects is None:
        return None
    return tuple(from_json_value(Effect, value) for value in json.loads(row.effects))


def write_effects(row: ExperimentRow, effects: tuple[Effect, ...]) -> None:
    """Store the final effects."""
    row.effects = json.dumps([to_json_value(effect) for effect in effects], sort_keys=True)
