"""Workers come, report, drain and are lost; what routers must know of it is a new generation."""

from datetime import datetime, timedelta
from urllib.parse import urlsplit

from controlplane.domain.fleets import Worker, WorkerLease, WorkerState
from controlplane.domain.worker_state import state_on_heartbeat
from controlplane.errors import Conflict, InvalidField, NotFound
from controlplane.services.manage_fleets import get_fleet, lock_fleet
from controlplane.services.record_change import Change
from controlplane.services.show_routers import decode_profile_urls
from controlplane.settings import Settings
from controlplane.storage.database import Database, ReadSession
from controlplane.storage.models.fleets import FleetRow, WorkerRow
from controlplane.storage.repositories import fleets, workers
from eldr_runtime.errors import ModelMismatch
from eldr_runtime.heartbeats import WorkerHeartbeat
from eldr_runtime.routing_config import check_worker_url

# What the routing config says of a worker: a change of it is a new generation.
ROUTED_COLUMNS = ("role", "url", "state", "capacity", "transfer_mode")


def renew_lease(change: Change, fleet: str, heartbeat: WorkerHeartbeat, settings: Settings) -> WorkerLease:
    """Take a heartbeat: register the worker at first sight, renew its lease, note what changed."""
    if heartbeat.fleet != fleet:
        raise InvalidField(field="fleet", value=heartbeat.fleet, limit=f"{fleet}, the fleet of the path")
    check_host_is_allowed(heartbeat.url, settings)
    lease_expires_at = change.now + timedelta(seconds=settings.lease_seconds)
    state = workers.renew_unchanged(change.session, heartbeat, change.now, lease_expires_at)
    if state is None:
        fleet_row = lock_fleet(change.session, fleet)
        state = _note_changes(change, fleet_row, heartbeat, settings)
    else:
        fleet_row = get_fleet(change.session, fleet)
    return WorkerLease(
        worker_id=heartbeat.worker_id,
        state=state,
        lease_seconds=settings.lease_seconds,
        heartbeat_seconds=settings.heartbeat_seconds,
        decode_profile_urls=decode_profile_urls(change.session, fleet, change.now, settings),
        decode_profile_share=fleet_row.decode_profile_share,
    )


def grant_leases_anew(database: Database, settings: Settings, now: datetime) -> None:
    """Give every worker that is not lost a whole lease, when a control plane starts.

    Nobody could report while it was away: were leases to run out meanwhile, routers would be told to use
    no worker at all until each has reported again.
    """
    with database.write() as session:
        workers.extend_leases(session, now + timedelta(seconds=settings.lease_seconds))


def check_host_is_allowed(url: str, settings: Settings) -> None:
    """Refuse a URL that names a host the operator has not allowed, so that nobody is sent there."""
    check_worker_url(url)
    host = urlsplit(url).hostname or ""
    if not settings.allows_worker_host(host):
        limit = f"a URL of an allowed host: {settings.worker_hosts} (ELDR_WORKER_HOSTS)"
        raise InvalidField(field="url", value=url, limit=limit)


def drain_worker(change: Change, fleet: str, worker_id: str, reason: str) -> Worker:
    """Send a worker no new requests; it finishes its streams and keeps its place in the map."""
    return _set_drained(change, fleet, worker_id, reason, is_drained=True)


def resume_worker(change: Change, fleet: str, worker_id: str, reason: str) -> Worker:
    """Send a drained worker requests again."""
    return _set_drained(change, fleet, worker_id, reason, is_drained=False)


def remove_worker(change: Change, fleet: str, worker_id: str, reason: str) -> Worker:
    """Forget a worker that is lost or draining: its place in the map goes to others."""
    lock_fleet(change.session, fleet)
    before = workers.to_worker(_get_worker(change.session, fleet, worker_id), change.now)
    if before.state not in (WorkerState.LOST, WorkerState.DRAINING):
        raise Conflict(f"worker {worker_id!r} is {before.state}: drain it first")
    workers.remove_worker(change.session, fleet, worker_id)
    fleets.next_generation(change.session, fleet, cause=f"worker {worker_id} removed", now=change.now)
    _audit(change, fleet, worker_id, "remove", reason, before, None)
    return before


def expire_leases(change: Change) -> dict[str, list[str]]:
    """Note the workers whose lease ran out, for every fleet; called by a tick each second."""
    fleet_names = workers.fleets_with_expired(change.session, change.now)
    lost = {fleet: expire_leases_of(change, fleet) for fleet in fleet_names}
    return {fleet: worker_ids for fleet, worker_ids in lost.items() if worker_ids}


def expire_leases_of(change: Change, fleet: str) -> list[str]:
    """Note the workers of one fleet whose lease ran out: one new generation for all of them."""
    lock_fleet(change.session, fleet)
    lost = workers.mark_lost(change.session, fleet, change.now)
    if lost:
        fleets.next_generation(change.session, fleet, cause=f"lost {', '.join(lost)}", now=change.now)
    for worker_id in lost:
        after = workers.to_worker(_get_worker(change.session, fleet, worker_id), change.now)
        _audit(change, fleet, worker_id, "lose", "its lease ran out", None, after)
    return lost


def _note_changes(
    change: Change, fleet_row: FleetRow, heartbeat: WorkerHeartbeat, settings: Settings
) -> WorkerState:
    if heartbeat.model != fleet_row.model:
        raise ModelMismatch(
            f"worker {heartbeat.worker_id!r} serves {heartbeat.model}; "
            f"fleet {fleet_row.name!r} serves {fleet_row.model}"
        )
    row = workers.find_worker(change.session, fleet_row.name, heartbeat.worker_id)
    before = None if row is None else workers.to_worker(row, change.now)
    routed_before = None if row is None else [getattr(row, name) for name in ROUTED_COLUMNS]
    if row is None:
        row = WorkerRow(
            fleet=fleet_row.name, worker_id=heartbeat.worker_id, is_drained=False, joined_at=change.now
        )
    for name, value in workers.reported_values(heartbeat).items():
        setattr(row, name, value)
    row.state = state_on_heartbeat(heartbeat.state, is_drained=row.is_drained)
    row.last_seen_at = change.now
    row.lease_expires_at = change.now + timedelta(seconds=settings.lease_seconds)
    workers.add_worker(change.session, row)
    if routed_before != [getattr(row, name) for name in ROUTED_COLUMNS]:
        cause = f"worker {row.worker_id} is {row.state}"
        fleets.next_generation(change.session, row.fleet, cause=cause, now=change.now)
    after = workers.to_worker(row, change.now)
    action = "join" if before is None else "change"
    _audit(change, row.fleet, row.worker_id, action, "reported by the worker", before, after)
    return WorkerState(row.state)


def _set_drained(change: Change, fleet: str, worker_id: str, reason: str, *, is_drained: bool) -> Worker:
    lock_fleet(change.session, fleet)
    row = _get_worker(change.session, fleet, worker_id)
    if row.is_drained == is_drained:
        raise Conflict(f"worker {worker_id!r} {'is drained already' if is_drained else 'is not drained'}")
    before = workers.to_worker(row, change.now)
    row.is_drained = is_drained
    if row.state != WorkerState.LOST:
        row.state = state_on_heartbeat(WorkerState(row.reported_state), is_drained=is_drained)
    verb = "drain" if is_drained else "resume"
    fleets.next_generation(change.session, fleet, cause=f"{verb} worker {worker_id}", now=change.now)
    after = workers.to_worker(row, change.now)
    _audit(change, fleet, worker_id, verb, reason, before, after)
    return after


def _get_worker(session: ReadSession, fleet: str, worker_id: str) -> WorkerRow:
    row = workers.find_worker(session, fleet, worker_id)
    if row is None:
        raise NotFound(resource="worker", name=worker_id)
    return row


def _audit(
    change: Change,
    fleet: str,
    worker_id: str,
    action: str,
    reason: str,
    before: Worker | None,
    after: Worker | None,
) -> None:
    change.audit(
        action=action,
        resource="worker",
        resource_id=worker_id,
        fleet=fleet,
        reason=reason,
        before=before,
        after=after,
    )
