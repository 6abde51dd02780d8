"""How many alerts want attention."""

from sqlalchemy import func, select

from controlplane.domain.alerts import AlertState
from controlplane.storage.database import ReadSession
from controlplane.storage.models.alerts import AlertRow


def count_open(session: ReadSession, fleet: str) -> int:
    """Count the alerts of a fleet that fire or have no data."""
    statement = select(func.count()).where(
        AlertRow.fleet == fleet, AlertRow.state.in_((AlertState.FIRING, AlertState.NO_DATA))
    )
    return session.scalars(statement).one()
