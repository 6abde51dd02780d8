"""`/v1/fleets/{fleet}/alerts`."""

from fastapi import APIRouter, Response

from controlplane.api.parameters import Cursor, Limit
from controlplane.api.security import OperatorCall, ViewerCall
from controlplane.domain.alerts import Acknowledge, Alert, AlertState, Silence
from controlplane.domain.pages import Page
from controlplane.services import raise_alerts

router = APIRouter(prefix="/v1/fleets/{fleet}/alerts", tags=["alerts"])


@router.get("")
def list_alerts(
    fleet: str, call: ViewerCall, state: AlertState | None = None, cursor: Cursor = None, limit: Limit = 100
) -> Page[Alert]:
    """List alerts, newest first."""
    with call.read() as session:
        return raise_alerts.list_alerts(session, fleet, state, cursor, limit)


@router.post("/{alert_id}/acknowledge", response_model=Alert)
def acknowledge(fleet: str, alert_id: str, command: Acknowledge, call: OperatorCall) -> Response:
    """Say that somebody looks after an alert."""
    return call.act(command, lambda change: raise_alerts.acknowledge(change, fleet, alert_id, command))


@router.post("/{alert_id}/silence", response_model=Alert)
def silence(fleet: str, alert_id: str, command: Silence, call: OperatorCall) -> Response:
    """Keep an alert quiet for a time."""
    return call.act(command, lambda change: raise_alerts.silence(change, fleet, alert_id, command))
