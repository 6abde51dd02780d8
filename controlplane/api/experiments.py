"""`/v1/fleets/{fleet}/experiments`: switchbacks."""

from fastapi import APIRouter, Response

from controlplane.api.parameters import Cursor, Limit
from controlplane.api.security import OperatorCall, ViewerCall
from controlplane.domain.pages import Page
from controlplane.domain.telemetry import Experiment, StartExperiment, StopExperiment
from controlplane.services import run_experiment

router = APIRouter(prefix="/v1/fleets/{fleet}/experiments", tags=["experiments"])


@router.get("")
def list_experiments(
    fleet: str, call: ViewerCall, cursor: Cursor = None, limit: Limit = 100
) -> Page[Experiment]:
    """List experiments, newest first, with what each has measured."""
    with call.read() as session:
        return run_experiment.list_experiments(session, fleet, cursor, limit, call.now)


@router.post("", status_code=201, response_model=Experiment)
def start_experiment(fleet: str, command: StartExperiment, call: OperatorCall) -> Response:
    """Let the live settings and a control policy take turns over the whole pool."""
    return call.act(
        command, lambda change: run_experiment.start_experiment(change, fleet, command), status=201
    )


@router.get("/{experiment_id}")
def show_experiment(fleet: str, experiment_id: str, call: ViewerCall) -> Experiment:
    """Answer an experiment with what it has measured so far."""
    with call.read() as session:
        return run_experiment.get_experiment(session, fleet, experiment_id, call.now)


@router.post("/{experiment_id}/stop", response_model=Experiment)
def stop_experiment(fleet: str, experiment_id: str, command: StopExperiment, call: OperatorCall) -> Response:
    """End an experiment early; its windows so far are kept."""
    return call.act(
        command, lambda change: run_experiment.stop_experiment(change, fleet, experiment_id, command)
    )
