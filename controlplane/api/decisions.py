"""`/v1/fleets/{fleet}/decisions`: why sampled requests went where they did."""

from typing import Annotated

from fastapi import APIRouter, Query

from controlplane.api.parameters import Cursor, Limit, Moment
from controlplane.api.security import ViewerCall
from controlplane.domain.pages import Page
from controlplane.domain.telemetry import SampledDecision
from controlplane.services.list_decisions import get_decision
from controlplane.services.list_decisions import list_decisions as find_decisions
from controlplane.storage.repositories.samples import SampleFilter

router = APIRouter(prefix="/v1/fleets/{fleet}/decisions", tags=["telemetry"])


@router.get("")
def list_decisions(
    fleet: str,
    call: ViewerCall,
    worker: Annotated[str | None, Query(max_length=128, description="decode worker")] = None,
    cluster: Annotated[int | None, Query(ge=0, description="nearest centroid")] = None,
    since: Moment = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Page[SampledDecision]:
    """List sampled decisions, newest first."""
    wanted = SampleFilter(since=since, worker=worker, cluster=cluster)
    with call.read() as session:
        return find_decisions(session, fleet, wanted, cursor, limit)


@router.get("/{request_id}")
def show_decision(fleet: str, request_id: str, call: ViewerCall) -> SampledDecision:
    """Answer the decision on one sampled request."""
    with call.read() as session:
        return get_decision(session, fleet, request_id)
