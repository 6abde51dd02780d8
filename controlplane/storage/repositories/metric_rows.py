"""Rolled-up metrics, one row a window of a series."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import delete, select

from controlplane.domain.latency_counts import LatencyCounts
from controlplane.domain.metric_series import (
    NO_EXPERIMENT,
    SeriesKey,
    SeriesTotals,
    SubjectKind,
    sum_totals,
)
from controlplane.storage.database import ReadSession, WriteSession
from controlplane.storage.models.metadata import new_id
from controlplane.storage.models.telemetry import MetricRow

KEY_COLUMNS = tuple(SeriesKey.__dataclass_fields__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Totals of one window of one series."""

    key: SeriesKey
    totals: SeriesTotals


def add_totals(session: WriteSession, fleet: str, totals: Mapping[SeriesKey, SeriesTotals]) -> None:
    """Add what was counted to the rows there are, and make those there are not."""
    found = {_key(row): row for row in _rows_of_windows(session, fleet, totals)}
    for key, added in totals.items():
        row = found.get(key)
        if row is None:
            columns = {name: getattr(key, name) for name in KEY_COLUMNS}
            row = MetricRow(id=new_id(), fleet=fleet, prompt_tokens=0, **columns)
            session.add(row)
            _store(row, added)
        else:
            _store(row, sum_totals([_totals(row), added]))
    session.flush()


def read_windows(
    session: ReadSession,
    fleet: str,
    kind: SubjectKind,
    *,
    shortest_seconds: int,
    longest_seconds: int,
    since: datetime,
    until: datetime,
) -> list[Series]:
    """Read the rows outside of experiments whose window has a length within the bounds, by time."""
    statement = select(MetricRow).where(
        MetricRow.fleet == fleet,
        MetricRow.window_seconds >= shortest_seconds,
        MetricRow.window_seconds <= longest_seconds,
        MetricRow.window_start >= since,
        MetricRow.window_start < until,
        MetricRow.subject_kind == kind,
        MetricRow.experiment_id == NO_EXPERIMENT,
    )
    return _series(session.scalars(statement.order_by(MetricRow.window_start, MetricRow.subject)))


def read_experiment(session: ReadSession, fleet: str, experiment_id: str, kind: SubjectKind) -> list[Series]:
    """Read the rows of an experiment outside of its washouts, by window."""
    statement = select(MetricRow).where(
        MetricRow.fleet == fleet,
        MetricRow.experiment_id == experiment_id,
        MetricRow.subject_kind == kind,
        MetricRow.is_washout.is_(False),
    )
    return _series(session.scalars(statement.order_by(MetricRow.experiment_window, MetricRow.subject)))


def forget_windows(session: WriteSession, fleet: str, *, longest_seconds: int, before: datetime) -> None:
    """Remove rows of windows up to a length that began before a time, those of experiments aside."""
    session.execute(
        delete(MetricRow).where(
            MetricRow.fleet == fleet,
            MetricRow.window_seconds <= longest_seconds,
            MetricRow.window_start < before,
            MetricRow.experiment_id == NO_EXPERIMENT,
        )
    )


def _rows_of_windows(session: WriteSession, fleet: str, keys: Iterable[SeriesKey]) -> Sequence[MetricRow]:
    windows = {(key.window_seconds, key.window_start) for key in keys}
    rows: list[MetricRow] = []
    for window_seconds, window_start in sorted(windows):
        statement = select(MetricRow).where(
            MetricRow.fleet == fleet,
            MetricRow.window_seconds == window_seconds,
            MetricRow.window_start == window_start,
        )
        rows += session.scalars(statement)
    return rows


def _series(rows: Iterable[MetricRow]) -> list[Series]:
    return [Series(key=_key(row), totals=_totals(row)) for row in rows]


def _key(row: MetricRow) -> SeriesKey:
    return SeriesKey(
        window_seconds=row.window_seconds,
        window_start=row.window_start,
        subject_kind=SubjectKind(row.subject_kind),
        subject=row.subject,
        arm=row.arm,
        version_number=row.version_number,
        experiment_id=row.experiment_id,
        experiment_window=row.experiment_window,
        is_washout=row.is_washout,
    )


def _totals(row: MetricRow) -> SeriesTotals:
    return SeriesTotals(
        n_requests=row.n_requests,
        n_errors=row.n_errors,
        n_without_signature=row.n_without_signature,
        output_tokens=row.output_tokens,
        band_size_sum=row.band_size_sum,
        n_bands=row.n_bands,
        n_steps=row.n_steps,
        batch_sum=row.batch_sum,
        active_experts_sum=tuple(json.loads(row.active_experts_sum)),
        tpot=LatencyCounts.from_base64(row.tpot_histogram),
        ttft=LatencyCounts.from_base64(row.ttft_histogram),
    )


def _store(row: MetricRow, totals: SeriesTotals) -> None:
    for name in (
        "n_requests", "n_errors", "n_without_signature", "output_tokens", "band_size_sum", "n_bands",
        "n_steps", "batch_sum",
    ):  # fmt: skip
        setattr(row, name, getattr(totals, name))
    row.active_experts_sum = json.dumps(totals.active_experts_sum)
    row.tpot_histogram = totals.tpot.to_base64()
    row.ttft_histogram = totals.ttft.to_base64()
