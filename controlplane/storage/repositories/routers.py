"""Routers and what they acknowledged."""

from datetime import datetime

from sqlalchemy import select

from controlplane.storage.database import ReadSession, WriteSession
from controlplane.storage.models.fleets import RouterRow
from eldr_runtime.heartbeats import RouterHeartbeat


def keep_heartbeat(session: WriteSession, fleet: str, heartbeat: RouterHeartbeat, now: datetime) -> None:
    """Store the last heartbeat of a router."""
    session.merge(
        RouterRow(
            fleet=fleet,
            router_id=heartbeat.router_id,
            url=heartbeat.url,
            generation_applied=heartbeat.generation_applied or None,
            config_source=heartbeat.config_source,
            in_flight=dict(heartbeat.in_flight),
            dropped_events=heartbeat.dropped_events,
            versions=dict(heartbeat.versions),
            last_seen_at=now,
        )
    )


def list_routers(session: ReadSession, fleet: str, seen_since: datetime) -> list[RouterRow]:
    """List the routers of a fleet that were seen since a time, by id."""
    statement = select(RouterRow).where(RouterRow.fleet == fleet, RouterRow.last_seen_at > seen_since)
    return list(session.scalars(statement.order_by(RouterRow.router_id)))
