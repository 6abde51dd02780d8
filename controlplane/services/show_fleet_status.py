"""One look at a fleet."""

from datetime import datetime

from controlplane.domain.fleets import FleetStatus, WorkerState
from controlplane.services.manage_fleets import get_fleet
from controlplane.services.show_routers import show_routers
from controlplane.settings import Settings
from controlplane.storage.database import ReadSession
from controlplane.storage.repositories import open_alerts, settings_revisions, versions, workers
from controlplane.storage.repositories.fleets import to_fleet
from eldr_runtime.routing_config import WorkerRole


def show_fleet_status(session: ReadSession, fleet: str, now: datetime, settings: Settings) -> FleetStatus:
    """Tell what is live, who serves and what is wrong."""
    row = get_fleet(session, fleet)
    states = [(worker.role, worker.state) for worker in workers.list_workers(session, fleet, now)]
    active = versions.find_active(session, fleet)
    live = settings_revisions.current_revision(session, fleet)
    return FleetStatus(
        fleet=to_fleet(row),
        generation=row.generation,
        routers=show_routers(session, fleet, now, settings),
        n_ready_prefill=states.count((WorkerRole.PREFILL, WorkerState.READY)),
        n_ready_decode=states.count((WorkerRole.DECODE, WorkerState.READY)),
        n_lost=sum(state is WorkerState.LOST for _, state in states),
        active_version_number=None if active is None else active.number,
        policy=live.policy,
        tau=live.tau,
        n_open_alerts=open_alerts.count_open(session, fleet),
    )
