"""Revisions of the routing settings."""

from datetime import datetime

from sqlalchemy import exists, select
from sqlalchemy.orm import aliased

from controlplane.domain.versions import RoutingSettings
from controlplane.storage.database import ReadSession, WriteSession
from controlplane.storage.models.versions import SettingsRevisionRow


def add_revision(session: WriteSession, row: SettingsRevisionRow) -> None:
    """Add a revision, which is live from then on."""
    session.add(row)
    session.flush()


def current_revision(session: ReadSession, fleet: str) -> SettingsRevisionRow:
    """Find the live revision; every fleet has one."""
    statement = select(SettingsRevisionRow).where(SettingsRevisionRow.fleet == fleet)
    return session.scalars(statement.order_by(SettingsRevisionRow.revision.desc()).limit(1)).one()


def get_revision(session: ReadSession, fleet: str, revision: int) -> SettingsRevisionRow:
    """Read a revision that is known to exist."""
    return session.get_one(SettingsRevisionRow, (fleet, revision))


def revision_at(session: ReadSession, fleet: str, at: datetime) -> SettingsRevisionRow | None:
    """Find the revision that was live at a time."""
    statement = (
        select(SettingsRevisionRow)
        .where(SettingsRevisionRow.fleet == fleet, SettingsRevisionRow.changed_at <= at)
        .order_by(SettingsRevisionRow.revision.desc())
        .limit(1)
    )
    return session.scalars(statement).first()


def list_revisions(
    session: ReadSession, fleet: str, *, before: int | None, limit: int
) -> list[RoutingSettings]:
    """List revisions, newest first."""
    statement = select(SettingsRevisionRow).where(SettingsRevisionRow.fleet == fleet)
    if before is not None:
        statement = statement.where(SettingsRevisionRow.revision < before)
    rows = session.scalars(statement.order_by(SettingsRevisionRow.revision.desc()).limit(limit))
    return [to_settings(row) for row in rows]


def due_reverts(session: ReadSession, now: datetime) -> list[SettingsRevisionRow]:
    """Find the live revisions whose time to be reverted has come."""
    later = aliased(SettingsRevisionRow)
    statement = select(SettingsRevisionRow).where(
        SettingsRevisionRow.revert_at <= now,
        ~exists().where(
            later.fleet == SettingsRevisionRow.fleet, later.revision > SettingsRevisionRow.revision
        ),
    )
    return list(session.scalars(statement.order_by(SettingsRevisionRow.fleet)))


def to_settings(row: SettingsRevisionRow) -> RoutingSettings:
    """Value of a row."""
    return RoutingSettings(
        revision=row.revision,
        generation=row.generation,
        policy=row.policy,
        tau=row.tau,
        load_cap=row.load_cap,
        control_share=row.control_share,
        changed_at=row.changed_at,
        changed_by=row.changed_by,
        reason=row.reason,
        revert_at=row.revert_at,
    )
