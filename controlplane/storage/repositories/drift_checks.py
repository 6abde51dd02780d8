"""Drift checks and their history."""

import json
from datetime import datetime

from sqlalchemy import delete, select

from controlplane.domain.telemetry import DriftCheck, DriftMeasure
from controlplane.storage.database import ReadSession, WriteSession
from controlplane.storage.models.telemetry import DriftCheckRow
from controlplane.storage.models.versions import VersionRow
from eldr_runtime.json_values import from_json_value, to_json_value


def add_check(session: WriteSession, fleet: str, check: DriftCheck) -> None:
    """Add a check."""
    row = DriftCheckRow(
        id=check.id,
        fleet=fleet,
        at=check.at,
        version_id=check.version_id,
        window_seconds=check.window_seconds,
        measures=json.dumps([to_json_value(measure) for measure in check.measures]),
        refit_decision=check.refit_decision,
        occupancy=json.dumps(check.occupancy),
        reference_occupancy=json.dumps(check.reference_occupancy),
    )
    session.add(row)
    session.flush()


def list_checks(
    session: ReadSession,
    fleet: str,
    *,
    since: datetime | None = None,
    version_id: str | None = None,
    before_id: str | None = None,
    limit: int,
) -> list[DriftCheck]:
    """List checks, newest first."""
    statement = (
        select(DriftCheckRow, VersionRow.number)
        .join(VersionRow, VersionRow.id == DriftCheckRow.version_id)
        .where(DriftCheckRow.fleet == fleet)
    )
    if since is not None:
        statement = statement.where(DriftCheckRow.at >= since)
    if version_id is not None:
        statement = statement.where(DriftCheckRow.version_id == version_id)
    if before_id is not None:
        statement = statement.where(DriftCheckRow.id < before_id)
    found = session.execute(statement.order_by(DriftCheckRow.id.desc()).limit(limit))
    return [_to_check(row, number) for row, number in found]


def forget_checks(session: WriteSession, fleet: str, before: datetime) -> None:
    """Remove checks older than their retention."""
    session.execute(delete(DriftCheckRow).where(DriftCheckRow.fleet == fleet, DriftCheckRow.at < before))


def _to_check(row: DriftCheckRow, version_number: int) -> DriftCheck:
    return DriftCheck(
        id=row.id,
        at=row.at,
        version_id=row.version_id,
        version_number=version_number,
        window_seconds=row.window_seconds,
        measures=tuple(from_json_value(DriftMeasure, value) for value in json.loads(row.measures)),
        refit_decision=row.refit_decision,
        occupancy=tuple(json.loads(row.occupancy)),
        reference_occupancy=tuple(json.loads(row.reference_occupancy)),
    )
