"""`/v1/fleets`."""

from fastapi import APIRouter, Response

from controlplane.api.answers import etag
from controlplane.api.parameters import Cursor, Limit
from controlplane.api.security import AdminCall, ViewerCall
from controlplane.domain.fleets import CreateFleet, Fleet, FleetStatus
from controlplane.domain.pages import Page
from controlplane.services import manage_fleets
from controlplane.services.show_fleet_status import show_fleet_status
from controlplane.storage.repositories.fleets import to_fleet

router = APIRouter(prefix="/v1/fleets", tags=["fleets"])


@router.get("")
def list_fleets(call: ViewerCall, cursor: Cursor = None, limit: Limit = 100) -> Page[Fleet]:
    """List fleets by name."""
    with call.read() as session:
        return manage_fleets.list_fleets(session, cursor, limit)


@router.post("", status_code=201, response_model=Fleet)
def make_fleet(command: CreateFleet, call: AdminCall) -> Response:
    """Make a fleet, with first routing settings and generation 1."""
    return call.act(
        command,
        lambda change: manage_fleets.make_fleet(change, command),
        status=201,
        revision_of=lambda fleet: fleet.revision,
    )


@router.get("/{fleet}")
def get_fleet(fleet: str, call: ViewerCall, response: Response) -> Fleet:
    """Answer one fleet."""
    with call.read() as session:
        found = to_fleet(manage_fleets.get_fleet(session, fleet))
    response.headers["ETag"] = etag(found.revision)
    return found


@router.get("/{fleet}/status")
def get_status(fleet: str, call: ViewerCall) -> FleetStatus:
    """Answer one look at a fleet: what is live, who serves, what is wrong."""
    with call.read() as session:
        return show_fleet_status(session, fleet, call.now, call.state.settings)
