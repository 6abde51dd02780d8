"""Activations: which version was live when."""

from datetime import datetime

from sqlalchemy import or_, select

from controlplane.domain.versions import Activation, ActivationKind
from controlplane.storage.database import ReadSession, WriteSession
from controlplane.storage.models.versions import ActivationRow, VersionRow


def add_activation(session: WriteSession, row: ActivationRow) -> None:
    """Add an activation; the open one before it ends at the same moment."""
    statement = select(ActivationRow).where(ActivationRow.fleet == row.fleet, ActivationRow.until.is_(None))
    for open_row in session.scalars(statement):
        open_row.until = row.at
    session.flush()
    session.add(row)
    session.flush()


def list_activations(
    session: ReadSession, fleet: str, *, before_id: str | None = None, limit: int
) -> list[Activation]:
    """List activations, newest first."""
    statement = (
        select(ActivationRow, VersionRow.number)
        .join(VersionRow, VersionRow.id == ActivationRow.version_id)
        .where(ActivationRow.fleet == fleet)
    )
    if before_id is not None:
        statement = statement.where(ActivationRow.id < before_id)
    found = session.execute(statement.order_by(ActivationRow.id.desc()).limit(limit))
    return [to_activation(row, number) for row, number in found]


def activation_at(session: ReadSession, fleet: str, at: datetime) -> Activation | None:
    """Find what was live at a moment; an activation holds from `at` on and no longer at `until`."""
    statement = (
        select(ActivationRow, VersionRow.number)
        .join(VersionRow, VersionRow.id == ActivationRow.version_id)
        .where(
            ActivationRow.fleet == fleet,
            ActivationRow.at <= at,
            or_(ActivationRow.until.is_(None), ActivationRow.until > at),
        )
    )
    found = session.execute(statement).one_or_none()
    return None if found is None else to_activation(found[0], found[1])


def to_activation(row: ActivationRow, version_number: int) -> Activation:
    """Value of a row."""
    return Activation(
        id=row.id,
        kind=ActivationKind(row.kind),
        version_id=row.version_id,
        version_number=version_number,
        actor=row.actor,
        reason=row.reason,
        is_override=row.is_override,
        generation=row.generation,
        at=row.at,
        until=row.until,
    )
