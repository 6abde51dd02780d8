"""`/v1/fleets/{fleet}/routers` and the routing config they poll."""

from typing import Annotated

from fastapi import APIRouter, Header, Response

from controlplane.api.answers import etag, is_unchanged
from controlplane.api.security import ReaderCall, ServiceCall, ViewerCall
from controlplane.domain.fleets import RouterStatus
from controlplane.domain.pages import Page
from controlplane.services.acknowledge_config import acknowledge_config
from controlplane.services.build_routing_config import build_routing_config, current_generation
from controlplane.services.show_routers import show_routers
from eldr_runtime.heartbeats import RouterHeartbeat
from eldr_runtime.routing_config import RoutingConfig

router = APIRouter(prefix="/v1/fleets/{fleet}", tags=["routers"])


@router.get("/routers")
def list_routers(fleet: str, call: ViewerCall) -> Page[RouterStatus]:
    """List the routers heard of in the last hour, what they run and who lags."""
    with call.read() as session:
        items = show_routers(session, fleet, call.now, call.state.settings)
    return Page(items=items, next_cursor=None)


@router.post("/routers/heartbeat", status_code=204)
def take_heartbeat(fleet: str, heartbeat: RouterHeartbeat, call: ServiceCall) -> None:
    """Take a router's acknowledgement of the generation it runs."""
    with call.change() as change:
        acknowledge_config(change.session, fleet, heartbeat, call.state.settings, call.now)


@router.get("/routing-config", response_model=RoutingConfig, responses={304: {"description": "Unchanged"}})
def get_routing_config(
    fleet: str,
    call: ReaderCall,
    if_none_match: Annotated[str | None, Header(alias="If-None-Match")] = None,
) -> Response:
    """Answer the snapshot routers serve from; its ETag is the generation."""
    generation = current_generation(call.state.database, fleet, call.request_id, call.now)
    if is_unchanged(if_none_match, generation):
        return Response(status_code=304, headers={"ETag": etag(generation)})
    with call.read() as session:
        config = build_routing_config(session, fleet, call.now)
    return Response(
        config.to_json(), media_type="application/json", headers={"ETag": etag(config.generation)}
    )
