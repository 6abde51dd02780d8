from datetime import UTC, datetime, timedelta

import pytest

from controlplane.domain.worker_state import state_at, state_on_heartbeat
from eldr_runtime.routing_config import WorkerState

NOW = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.mark.parametrize("reported", [WorkerState.JOINING, WorkerState.READY, WorkerState.DRAINING])
def test_an_operators_wish_outranks_the_report(reported: WorkerState) -> None:
    assert state_on_heartbeat(reported, is_drained=True) is WorkerState.DRAINING
    assert state_on_heartbeat(reported, is_drained=False) is reported


@pytest.mark.parametrize(("seconds_left", "is_lost"), [(0.001, False), (0, True), (-1, True)])
def test_a_worker_is_lost_from_the_end_of_its_lease(seconds_left: float, is_lost: bool) -> None:
    state = state_at(WorkerState.READY, NOW + timedelta(seconds=seconds_left), NOW)
    assert state is (WorkerState.LOST if is_lost else WorkerState.READY)
