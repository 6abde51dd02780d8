"""Take a router's heartbeat, which says which generation it runs."""

from datetime import datetime

from controlplane.services.manage_fleets import get_fleet
from controlplane.services.renew_lease import check_host_is_allowed
from controlplane.settings import Settings
from controlplane.storage.database import WriteSession
from controlplane.storage.repositories import routers
from eldr_runtime.heartbeats import RouterHeartbeat


def acknowledge_config(
    session: WriteSession,
    fleet: str,
    heartbeat: RouterHeartbeat,
    settings: Settings,
    now: datetime,
) -> None:
    """Store a router's heartbeat; its URL is where workers will send decode profiles."""
    get_fleet(session, fleet)
    if heartbeat.url is not None:
        check_host_is_allowed(heartbeat.url, settings)
    routers.keep_heartbeat(session, fleet, heartbeat, now)
