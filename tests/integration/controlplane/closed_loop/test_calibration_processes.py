"""The processes of calibrations: started once, once again if they die, taken over if they go silent."""

import json
import time
from dataclasses import replace
from typing import Any

import pytest

from controlplane.jobs.calibration_processes import SILENT_SECONDS, CalibrationProcesses, start_process
from controlplane.jobs.lease import FencedDatabase, take_lease
from controlplane.services.calibrate import claim_run
from controlplane.services.run_calibration import ClaimedRun, Progress


@pytest.fixture
def path(fleet: str, control_plane: Any) -> str:
    control_plane.use_settings(replace(control_plane.settings, calibration_splits=2))
    return f"/v1/fleets/{fleet}/calibration-runs"


@pytest.fixture
def fenced(control_plane: Any) -> FencedDatabase:
    lease = take_lease(control_plane.database, "test", seconds=600)
    assert lease is not None
    return FencedDatabase(database=control_plane.database, lease=lease)


def start(operator: Any, path: str, **command: Any) -> dict[str, Any]:
    answer = operator.post(path, json={"reason": "try it", "n_clusters": 2} | command)
    assert answer.status_code == 202, answer.text
    return answer.json()


def claim(control_plane: Any) -> ClaimedRun:
    with control_plane.change("system:calibration") as change:
        found = claim_run(change)
    assert found is not None
    return ClaimedRun(run_id=found[0], epoch=found[1])


def show(viewer: Any, path: str, run_id: str) -> dict[str, Any]:
    return viewer.get(f"{path}/{run_id}").json()


class FakeProcess:
    """A process whose end the test decides."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.is_killed = False

    def poll(self) -> int | None:
        return self.status

    def terminate(self) -> None:
        self.status = -15

    def kill(self) -> None:
        self.is_killed = True
        self.status = -9

    def wait(self, timeout: float | None = None) -> int:
        assert self.status is not None
        return self.status


@pytest.fixture
def started() -> list[tuple[str, int, FakeProcess]]:
    return []


@pytest.fixture
def processes(started: list[tuple[str, int, FakeProcess]]) -> CalibrationProcesses:
    def start_fake(run_id: str, epoch: int) -> FakeProcess:
        started.append((run_id, epoch, FakeProcess()))
        return started[-1][2]

    return CalibrationProcesses(start=start_fake)


def test_ticks_start_one_process_and_start_it_again_once_if_it_dies(
    operator: Any, viewer: Any, path: str, upload_trace: Any, trace_of: Any, control_plane: Any,
    fenced: FencedDatabase, processes: CalibrationProcesses, started: list[Any],
) -> None:  # fmt: skip
    run = start(operator, path, trace_pack_id=upload_trace(trace_of())["id"])
    for _ in range(3):
        processes.tick(fenced, control_plane.clock.now)
    assert [(run_id, epoch) for run_id, epoch, _ in started] == [(run["id"], 1)]
    started[0][2].status = -9
    processes.tick(fenced, control_plane.clock.now)
    assert [epoch for _, epoch, _ in started] == [1, 2]
    started[1][2].status = -9
    processes.tick(fenced, control_plane.clock.now)
    assert len(started) == 2
    assert show(viewer, path, run["id"])["state"] == "failed"


def test_another_control_plane_takes_over_a_silent_run_and_not_a_beating_one(
    operator: Any, viewer: Any, path: str, upload_trace: Any, trace_of: Any, control_plane: Any,
    fenced: FencedDatabase, processes: CalibrationProcesses, started: list[Any],
) -> None:  # fmt: skip
    run = start(operator, path, trace_pack_id=upload_trace(trace_of())["id"])
    lost = claim(control_plane)
    control_plane.clock.advance(SILENT_SECONDS - 1)
    processes.tick(fenced, control_plane.clock.now)
    assert started == []
    Progress(control_plane.database, lost, control_plane.clock).beat()
    control_plane.clock.advance(SILENT_SECONDS - 1)
    processes.tick(fenced, control_plane.clock.now)
    assert started == []
    control_plane.clock.advance(2)
    processes.tick(fenced, control_plane.clock.now)
    assert [(run_id, epoch) for run_id, epoch, _ in started] == [(run["id"], 2)]


def test_a_process_of_its_own_carries_a_run_out(
    operator: Any, viewer: Any, path: str, upload_trace: Any, trace_of: Any, control_plane: Any,
    fenced: FencedDatabase, tmp_path: Any,
) -> None:  # fmt: skip
    run = start(operator, path, trace_pack_id=upload_trace(trace_of())["id"])
    processes = CalibrationProcesses(start=start_process(control_plane.settings, {"PATH": ""}))
    processes.tick(fenced, control_plane.clock.now)
    for _ in range(1200):
        if show(viewer, path, run["id"])["state"] not in ("queued", "running"):
            break
        time.sleep(0.1)
    done = show(viewer, path, run["id"])
    assert (done["state"], done["error"]) == ("succeeded", None)
    (process,) = processes.running.values()
    assert process.wait(60) == 0
    processes.tick(fenced, control_plane.clock.now)
    assert processes.running == {}
    assert json.dumps(done)
