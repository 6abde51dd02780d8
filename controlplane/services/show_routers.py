"""Routers: what they acknowledge, who lags, and where workers send decode profiles."""

from datetime import datetime, timedelta

from controlplane.domain.fleets import RouterStatus
from controlplane.services.manage_fleets import get_fleet
from controlplane.settings import Settings
from controlplane.storage.database import ReadSession
from controlplane.storage.models.fleets import RouterRow
from controlplane.storage.repositories import fleets, routers
from eldr_runtime.heartbeats import MISSED_BEATS_TO_LAG

# A router not heard of for so long is gone, not lagging.
FORGET_SECONDS = 3600.0
DECODE_PROFILE_PATH = "/v1/decode-profiles"


def show_routers(
    session: ReadSession, fleet: str, now: datetime, settings: Settings
) -> tuple[RouterStatus, ...]:
    """Tell of each router of a fleet what it runs and whether it lags."""
    grace = timedelta(seconds=MISSED_BEATS_TO_LAG * settings.heartbeat_seconds)
    wanted = fleets.generation_at(session, get_fleet(session, fleet).name, now - grace) or 0
    rows = routers.list_routers(session, fleet, now - timedelta(seconds=FORGET_SECONDS))
    return tuple(_to_status(row, now - grace, wanted) for row in rows)


def decode_profile_urls(
    session: ReadSession, fleet: str, now: datetime, settings: Settings
) -> tuple[str, ...]:
    """List where workers send decode profiles: the routers that were heard of within a lease."""
    rows = routers.list_routers(session, fleet, now - timedelta(seconds=settings.lease_seconds))
    return tuple(row.url.rstrip("/") + DECODE_PROFILE_PATH for row in rows if row.url is not None)


def _to_status(row: RouterRow, seen_since: datetime, wanted_generation: int) -> RouterStatus:
    is_behind = row.generation_applied is None or row.generation_applied < wanted_generation
    return RouterStatus(
        router_id=row.router_id,
        url=row.url,
        generation_applied=row.generation_applied,
        config_source=row.config_source,
        is_lagging=is_behind or row.last_seen_at < seen_since,
        in_flight=row.in_flight,
        dropped_events=row.dropped_events,
        last_seen_at=row.last_seen_at,
    )
