"""Audit events: added and listed, nothing else."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select

from controlplane.domain.alerts import AuditEvent
from controlplane.storage.database import ReadSession, WriteSession
from controlplane.storage.models.access import AuditEventRow


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Which events to list."""

    fleet: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    resource: str | None = None
    resource_id: str | None = None


def add_event(session: WriteSession, event: AuditEventRow) -> None:
    """Add one event to the transaction of the change it tells of."""
    session.add(event)


def list_events(
    session: ReadSession, wanted: AuditFilter, *, before_id: int | None, limit: int
) -> list[AuditEvent]:
    """List events, newest first."""
    statement = select(AuditEventRow).order_by(AuditEventRow.id.desc()).limit(limit)
    if wanted.fleet is not None:
        statement = statement.where(AuditEventRow.fleet == wanted.fleet)
    if wanted.since is not None:
        statement = statement.where(AuditEventRow.at >= wanted.since)
    if wanted.until is not None:
        statement = statement.where(AuditEventRow.at < wanted.until)
    if wanted.resource is not None:
        statement = statement.where(AuditEventRow.resource == wanted.resource)
    if wanted.resource_id is not None:
        statement = statement.where(AuditEventRow.resource_id == wanted.resource_id)
    if before_id is not None:
        statement = statement.where(AuditEventRow.id < before_id)
    return [_to_event(row) for row in session.scalars(statement)]


def _to_event(row: AuditEventRow) -> AuditEvent:
    return AuditEvent(
        id=row.id,
        at=row.at,
        fleet=row.fleet,
        actor=row.actor,
        action=row.action,
        resource=row.resource,
        resource_id=row.resource_id,
        reason=row.reason,
        request_id=row.request_id,
        before=row.before,
        after=row.after,
    )
