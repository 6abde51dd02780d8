"""`/v1/fleets/{fleet}/workers`."""

from dataclasses import dataclass
from typing import ClassVar

from fastapi import APIRouter, Response

from controlplane.api.answers import answer
from controlplane.api.parameters import Cursor, Limit, Reason
from controlplane.api.security import OperatorCall, ServiceCall, ViewerCall
from controlplane.domain.fleets import Worker, WorkerLease
from controlplane.domain.pages import Page, to_page
from controlplane.services import renew_lease
from controlplane.services.manage_fleets import get_fleet
from controlplane.storage.repositories import workers
from eldr_runtime.heartbeats import WorkerHeartbeat

router = APIRouter(prefix="/v1/fleets/{fleet}/workers", tags=["workers"])


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainWorker:
    """Command: a worker gets no new requests, or gets them again."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    reason: str


@router.get("")
def list_workers(fleet: str, call: ViewerCall, cursor: Cursor = None, limit: Limit = 100) -> Page[Worker]:
    """List workers by id, as they are now."""
    with call.read() as session:
        get_fleet(session, fleet)
        found = workers.list_workers(session, fleet, call.now)
    after = [worker for worker in found if cursor is None or worker.worker_id > cursor]
    return to_page(after[: limit + 1], limit, lambda worker: worker.worker_id)


@router.post("/heartbeat", response_model=WorkerLease)
def take_heartbeat(fleet: str, heartbeat: WorkerHeartbeat, call: ServiceCall) -> Response:
    """Register a worker at first sight, and renew its lease."""
    with call.change() as change:
        return answer(renew_lease.renew_lease(change, fleet, heartbeat, call.state.settings))


@router.post("/{worker_id}/drain", response_model=Worker)
def drain_worker(fleet: str, worker_id: str, command: DrainWorker, call: OperatorCall) -> Response:
    """Send a worker no new requests; its streams go on."""
    return call.act(
        command, lambda change: renew_lease.drain_worker(change, fleet, worker_id, command.reason)
    )


@router.post("/{worker_id}/resume", response_model=Worker)
def resume_worker(fleet: str, worker_id: str, command: DrainWorker, call: OperatorCall) -> Response:
    """Send a drained worker requests again."""
    return call.act(
        command, lambda change: renew_lease.resume_worker(change, fleet, worker_id, command.reason)
    )


@router.delete("/{worker_id}", response_model=Worker)
def remove_worker(fleet: str, worker_id: str, call: OperatorCall, reason: Reason) -> Response:
    """Forget a worker that is lost or draining; its centroids go to others."""
    with call.change() as change:
        return answer(renew_lease.remove_worker(change, fleet, worker_id, reason))
