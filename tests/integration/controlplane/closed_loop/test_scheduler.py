"""The background work: under the lease only, each task in its own time, one failure not the others'."""

import asyncio
import logging
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from controlplane.application import create_app
from controlplane.jobs.calibration_processes import CalibrationProcesses
from controlplane.jobs.lease import take_lease
from controlplane.jobs.scheduler import BackgroundJobs
from controlplane.jobs.ticks import SYSTEM, Task, Tick, all_tasks, forget_old
from controlplane.storage.models.calibrations import LeaseRow
from controlplane.storage.repositories import samples
from controlplane.storage.repositories.samples import SampleFilter


def never(run_id: str, epoch: int) -> Any:
    raise AssertionError(f"no process for {run_id} of epoch {epoch}")


def build(control_plane: Any, *tasks: Task) -> BackgroundJobs:
    return BackgroundJobs(
        control_plane.database,
        control_plane.settings,
        control_plane.clock,
        tasks=tasks or all_tasks(control_plane.settings),
        processes=CalibrationProcesses(start=never),
    )


def run_out(control_plane: Any) -> None:
    with control_plane.database.write() as session:
        for row in session.query(LeaseRow):
            row.expires_at -= timedelta(seconds=100)


def test_of_two_control_planes_one_works(control_plane: Any) -> None:
    done: list[str] = []
    one = build(control_plane, Task(name="t", period_seconds=0.1, run=lambda tick: done.append("one")))
    other = build(control_plane, Task(name="t", period_seconds=0.1, run=lambda tick: done.append("other")))
    for jobs in (one, other, one, other):
        jobs.tick()
    assert done == ["one", "one"]
    run_out(control_plane)
    other.tick()
    assert done == ["one", "one", "other"]


def test_a_former_leader_finds_out_when_it_writes(control_plane: Any, caplog: Any) -> None:
    def write(tick: Tick) -> None:
        with tick.fenced.change(SYSTEM, tick.now):
            done.append("wrote")

    done: list[str] = []
    after = Task(name="after", period_seconds=0.1, run=lambda tick: done.append("after"))
    jobs = build(control_plane, Task(name="write", period_seconds=0.1, run=write), after)
    jobs.tick()
    run_out(control_plane)
    assert take_lease(control_plane.database, "another") is not None
    jobs.tick()
    assert done == ["wrote", "after"]
    assert "task write stops: epoch 1" in caplog.text


def test_a_task_that_fails_does_not_stop_the_others(control_plane: Any, caplog: Any) -> None:
    def fail(tick: Tick) -> None:
        raise ZeroDivisionError("planned")

    done: list[str] = []
    jobs = build(
        control_plane,
        Task(name="fails", period_seconds=1.0, run=fail),
        Task(name="works", period_seconds=1.0, run=lambda tick: done.append("worked")),
    )
    with caplog.at_level(logging.ERROR):
        jobs.tick()
    assert done == ["worked"]
    assert "task fails failed unexpectedly" in caplog.text


def test_a_task_waits_for_its_period(control_plane: Any) -> None:
    done: list[str] = []
    jobs = build(control_plane, Task(name="hourly", period_seconds=3600, run=lambda tick: done.append("x")))
    jobs.tick()
    jobs.tick()
    assert done == ["x"]


def test_all_tasks_run_on_an_empty_fleet(control_plane: Any, fleet: str, caplog: Any) -> None:
    build(control_plane).tick()
    assert caplog.text == ""


def test_a_lost_worker_and_a_due_revert_are_noted(
    operator: Any, viewer: Any, service: Any, control_plane: Any, fleet: str, telemetry: Any
) -> None:
    beat = {
        "v": 1, "fleet": fleet, "worker_id": "decode-0", "role": "decode", "url": "http://127.0.0.1:1",
        "engine": "x", "engine_version": "1", "plugin_version": None, "model": "toy/moe",
        "kv_connector": None, "transfer_mode": None, "self_test": "passed", "state": "ready", "capacity": 8,
    }  # fmt: skip
    assert service.post(f"/v1/fleets/{fleet}/workers/heartbeat", json=beat).status_code == 200
    tuned = operator.patch(
        f"/v1/fleets/{fleet}/settings",
        json={"reason": "for a while", "tau": 0.3, "auto_revert_seconds": 5.0},
        headers={"If-Match": '"1"'},
    )
    assert tuned.status_code == 200
    control_plane.clock.advance(11)
    build(control_plane).tick()
    assert viewer.get(f"/v1/fleets/{fleet}/settings").json()["tau"] == 0.1
    audit = viewer.get("/v1/audit", params={"fleet": fleet}).json()["items"]
    assert ("lose", "system") in [(event["action"], event["actor"]) for event in audit]


def test_samples_go_after_their_retention_and_counts_beyond_the_newest(
    service: Any, control_plane: Any, fleet: str, telemetry: Any
) -> None:
    control_plane.use_settings(replace(control_plane.settings, samples_with_counts=3))
    events = [telemetry.event(f"r{i}", seconds_ago=i) for i in range(5)]
    path = f"/v1/fleets/{fleet}/telemetry"
    service.post(path, json={"v": 1, "router_id": "router-0", "events": events})
    build(control_plane, Task(name="retention", period_seconds=60, run=forget_old)).tick()
    with control_plane.database.read() as session:
        kept = samples.read_counts(session, fleet, SampleFilter(), limit=10)
        assert [each.request_id for each in kept] == ["r0", "r1", "r2"]
        assert samples.find_decision(session, fleet, "r4") is not None
    control_plane.clock.advance(14 * 86_400)
    build(control_plane, Task(name="retention", period_seconds=60, run=forget_old)).tick()
    run_out(control_plane)
    build(control_plane, Task(name="retention", period_seconds=60, run=forget_old)).tick()
    with control_plane.database.read() as session:
        assert samples.find_decision(session, fleet, "r4") is None


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_the_application_ticks_and_ends_cleanly(control_plane: Any) -> None:
    app = create_app(control_plane.settings)

    async def serve() -> int:
        async with app.router.lifespan_context(app):
            for _ in range(100):
                await asyncio.sleep(0.1)
                with control_plane.database.read() as session:
                    if session.query(LeaseRow).count():
                        return 1
        return 0

    assert asyncio.run(serve()) == 1
    assert take_lease(control_plane.database, "the next") is not None
