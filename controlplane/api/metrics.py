"""`/v1/fleets/{fleet}/metrics` and `/unions`: live metrics."""

from typing import Annotated

from fastapi import APIRouter, Query

from controlplane.api.parameters import Moment
from controlplane.api.security import ViewerCall
from controlplane.domain.pages import Page
from controlplane.domain.telemetry import MetricPoint, WorkerUnion
from controlplane.services.summarise_metrics import MetricsBy, list_unions, summarise_metrics

router = APIRouter(prefix="/v1/fleets/{fleet}", tags=["telemetry"])

Step = Annotated[
    int | None, Query(ge=1, le=86_400, description="seconds a point; about 120 points if absent")
]


@router.get("/metrics")
def list_metrics(
    fleet: str,
    call: ViewerCall,
    by: MetricsBy = MetricsBy.FLEET,
    since: Moment = None,
    until: Moment = None,
    step_seconds: Step = None,
) -> Page[MetricPoint]:
    """List the points of a range (the last hour if not said), by time; never cut into pages."""
    with call.read() as session:
        points = summarise_metrics(
            session, fleet, by, since=since, until=until, step_seconds=step_seconds, now=call.now
        )
    return Page(items=points, next_cursor=None)


@router.get("/unions")
def show_unions(fleet: str, call: ViewerCall, since: Moment = None) -> Page[WorkerUnion]:
    """List the distinct experts a decode step loads, by worker and layer, by default of five minutes."""
    with call.read() as session:
        return Page(items=list_unions(session, fleet, since=since, now=call.now), next_cursor=None)
