"""Workers and their leases."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import delete, func, select, update

from controlplane.domain.fleets import Worker, WorkerState
from controlplane.domain.worker_state import state_at
from controlplane.storage.database import ReadSession, WriteSession
from controlplane.storage.models.fleets import WorkerRow
from eldr_runtime.heartbeats import WorkerHeartbeat


def reported_values(heartbeat: WorkerHeartbeat) -> dict[str, object]:
    """Columns that a heartbeat fills, by name."""
    return {
        "role": heartbeat.role,
        "url": heartbeat.url,
        "engine": heartbeat.engine,
        "engine_version": heartbeat.engine_version,
        "plugin_version": heartbeat.plugin_version,
        "model": heartbeat.model,
        "kv_connector": heartbeat.kv_connector,
        "transfer_mode": heartbeat.transfer_mode,
        "self_test": heartbeat.self_test,
        "reported_state": heartbeat.state,
        "capacity": heartbeat.capacity,
    }


def renew_unchanged(
    session: WriteSession, heartbeat: WorkerHeartbeat, now: datetime, lease_expires_at: datetime
) -> WorkerState | None:
    """Renew a live lease whose worker reports what it did before, in one statement; None if it does not."""
    statement = update(WorkerRow).where(
        WorkerRow.fleet == heartbeat.fleet,
        WorkerRow.worker_id == heartbeat.worker_id,
        WorkerRow.state != WorkerState.LOST,
        WorkerRow.lease_expires_at > now,
    )
    for name, value in reported_values(heartbeat).items():
        statement = statement.where(getattr(WorkerRow, name).is_not_distinct_from(value))
    renewed = session.execute(
        statement.values(last_seen_at=now, lease_expires_at=lease_expires_at).returning(WorkerRow.state)
    ).first()
    return None if renewed is None else WorkerState(renewed[0])


def extend_leases(session: WriteSession, lease_expires_at: datetime) -> None:
    """Let no lease of a worker that is not lost end before this time."""
    session.execute(
        update(WorkerRow)
        .where(WorkerRow.state != WorkerState.LOST, WorkerRow.lease_expires_at < lease_expires_at)
        .values(lease_expires_at=lease_expires_at)
    )


def find_worker(session: ReadSession, fleet: str, worker_id: str) -> WorkerRow | None:
    """Find a worker of a fleet."""
    return session.get(WorkerRow, (fleet, worker_id), populate_existing=True)


def add_worker(session: WriteSession, row: WorkerRow) -> None:
    """Add a worker."""
    session.add(row)
    session.flush()


def remove_worker(session: WriteSession, fleet: str, worker_id: str) -> None:
    """Remove a worker; it comes back with its next heartbeat."""
    session.execute(delete(WorkerRow).where(WorkerRow.fleet == fleet, WorkerRow.worker_id == worker_id))


def list_workers(session: ReadSession, fleet: str, now: datetime) -> list[Worker]:
    """List the workers of a fleet as they are now, by id."""
    return [to_worker(row, now) for row in list_rows(session, fleet)]


def list_rows(session: ReadSession, fleet: str) -> list[WorkerRow]:
    """List the rows of a fleet's workers, by id."""
    statement = select(WorkerRow).where(WorkerRow.fleet == fleet).order_by(WorkerRow.worker_id)
    return list(session.scalars(statement))


def has_expired(session: ReadSession, fleet: str, now: datetime) -> bool:
    """Whether some lease of a fleet has run out and that was not noted yet."""
    statement = select(func.count()).where(
        WorkerRow.fleet == fleet, WorkerRow.lease_expires_at <= now, WorkerRow.state != WorkerState.LOST
    )
    return session.scalars(statement).one() > 0


def fleets_with_expired(session: ReadSession, now: datetime) -> Sequence[str]:
    """Name the fleets in which a lease has run out and that was not noted yet."""
    statement = select(WorkerRow.fleet).where(
        WorkerRow.lease_expires_at <= now, WorkerRow.state != WorkerState.LOST
    )
    return session.scalars(statement.distinct().order_by(WorkerRow.fleet)).all()


def mark_lost(session: WriteSession, fleet: str, now: datetime) -> list[str]:
    """Note which leases have run out; of several that try, one notes each."""
    statement = (
        update(WorkerRow)
        .where(
            WorkerRow.fleet == fleet, WorkerRow.lease_expires_at <= now, WorkerRow.state != WorkerState.LOST
        )
        .values(state=WorkerState.LOST)
        .returning(WorkerRow.worker_id)
        .execution_options(synchronize_session=False)
    )
    return sorted(session.scalars(statement))


def to_worker(row: WorkerRow, now: datetime) -> Worker:
    """Value of a row, as it is now."""
    return Worker(
        worker_id=row.worker_id,
        fleet=row.fleet,
        role=row.role,
        url=row.url,
        engine=row.engine,
        engine_version=row.engine_version,
        plugin_version=row.plugin_version,
        model=row.model,
        kv_connector=row.kv_connector,
        transfer_mode=row.transfer_mode,
        self_test=row.self_test,
        state=state_at(WorkerState(row.state), row.lease_expires_at, now),
        capacity=row.capacity,
        last_seen_at=row.last_seen_at,
        lease_expires_at=row.lease_expires_at,
    )
