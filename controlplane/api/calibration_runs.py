"""`/v1/fleets/{fleet}/calibration-runs`."""

from dataclasses import dataclass
from typing import ClassVar

from fastapi import APIRouter, Response

from controlplane.api.parameters import Cursor, Limit
from controlplane.api.security import OperatorCall, ViewerCall
from controlplane.domain.calibrations import CalibrationRun, StartCalibration
from controlplane.domain.pages import Page
from controlplane.services import calibrate

router = APIRouter(prefix="/v1/fleets/{fleet}/calibration-runs", tags=["calibrations"])


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelCalibration:
    """Command: stop a run."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    reason: str


@router.get("")
def list_runs(
    fleet: str, call: ViewerCall, cursor: Cursor = None, limit: Limit = 100
) -> Page[CalibrationRun]:
    """List runs, newest first."""
    with call.read() as session:
        return calibrate.list_runs(session, fleet, cursor, limit)


@router.post("", status_code=202, response_model=CalibrationRun)
def start_calibration(fleet: str, command: StartCalibration, call: OperatorCall) -> Response:
    """Queue a calibration from a trace pack or from sampled live traffic; its version becomes a candidate."""
    return call.act(
        command,
        lambda change: calibrate.start_calibration(change, fleet, command, call.state.settings),
        status=202,
    )


@router.get("/{run_id}")
def show_run(fleet: str, run_id: str, call: ViewerCall) -> CalibrationRun:
    """Answer how far a run is, or how it ended."""
    with call.read() as session:
        return calibrate.get_run(session, fleet, run_id)


@router.get("/{run_id}/report")
def show_report(fleet: str, run_id: str, call: ViewerCall) -> Response:
    """Answer what a run found out about its version."""
    with call.read() as session:
        report = calibrate.get_report(session, fleet, run_id)
    return Response(report, media_type="application/json")


@router.post("/{run_id}/cancel", response_model=CalibrationRun)
def cancel_calibration(fleet: str, run_id: str, command: CancelCalibration, call: OperatorCall) -> Response:
    """Stop a run: at once if it is queued, otherwise when it next reports its progress."""
    return call.act(
        command, lambda change: calibrate.cancel_calibration(change, fleet, run_id, command.reason)
    )
