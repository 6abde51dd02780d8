"""The experiment that runs now, which the routing config and every change of live state ask for."""

from sqlalchemy import select

from controlplane.domain.telemetry import ExperimentState
from controlplane.storage.database import ReadSession
from controlplane.storage.models.telemetry import ExperimentRow


def find_running(session: ReadSession, fleet: str) -> ExperimentRow | None:
    """Find the experiment of a fleet that is running; there is at most one."""
    statement = select(ExperimentRow).where(
        ExperimentRow.fleet == fleet, ExperimentRow.state == ExperimentState.RUNNING
    )
    return session.scalars(statement.order_by(ExperimentRow.id.desc()).limit(1)).one_or_none()
