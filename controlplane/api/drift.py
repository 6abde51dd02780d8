"""`/v1/fleets/{fleet}/drift`."""

from fastapi import APIRouter, Response

from controlplane.api.parameters import Cursor, Limit, Moment
from controlplane.api.security import OperatorCall, ViewerCall
from controlplane.domain.pages import Page
from controlplane.domain.telemetry import DriftCheck
from controlplane.services import watch_drift
from controlplane.services.measure_traffic import measure_traffic

router = APIRouter(prefix="/v1/fleets/{fleet}/drift", tags=["drift"])


@router.get("")
def list_checks(
    fleet: str, call: ViewerCall, since: Moment = None, cursor: Cursor = None, limit: Limit = 100
) -> Page[DriftCheck]:
    """List drift checks, newest first."""
    with call.read() as session:
        return watch_drift.list_checks(session, fleet, since, cursor, limit)


@router.post("/check", status_code=201, response_model=DriftCheck)
def check_now(fleet: str, call: OperatorCall) -> Response:
    """Check for drift now; as with a check by the clock, it may fire alerts and start a refit."""
    settings = call.state.settings
    with call.read() as session:
        measured = measure_traffic(session, fleet, settings, call.now)
    return call.act(
        None, lambda change: watch_drift.keep_check(change, fleet, measured, settings), status=201
    )
