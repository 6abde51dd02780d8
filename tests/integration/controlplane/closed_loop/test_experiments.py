"""Switchbacks: what is refused, what routers are told, what comes out, and that it ends by itself."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from controlplane.services.roll_up_metrics import roll_up_metrics
from controlplane.services.run_experiment import first_boundary, settle_experiments

WANTED = {"reason": "does it help?", "n_pairs": 6, "window_seconds": 60, "washout_seconds": 20}


@pytest.fixture
def path(fleet: str, control_plane: Any) -> str:
    control_plane.use_settings(replace(control_plane.settings, experiment_settle_seconds=30.0))
    return f"/v1/fleets/{fleet}/experiments"


@pytest.fixture
def active(operator: Any, fleet: str, upload_version: Any, version_of: Any) -> dict[str, Any]:
    version = upload_version(version_of())
    promoted = operator.post(f"/v1/fleets/{fleet}/versions/{version['id']}/promote", json={"reason": "first"})
    assert promoted.status_code == 200, promoted.text
    return version


def start(operator: Any, path: str, **command: Any) -> dict[str, Any]:
    answer = operator.post(path, json=WANTED | command)
    assert answer.status_code == 201, answer.text
    return answer.json()


def tick(control_plane: Any, fleet: str) -> None:
    with control_plane.change("system:experiments") as change:
        roll_up_metrics(change, fleet)
    with control_plane.change("system:experiments") as change:
        settle_experiments(change, fleet, control_plane.settings)


def config(service: Any, fleet: str) -> dict[str, Any]:
    return service.get(f"/v1/fleets/{fleet}/routing-config").json()


def test_the_start_is_a_pair_boundary_that_routers_know_of_in_time() -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert first_boundary(noon, 60) == noon + timedelta(seconds=120)
    assert first_boundary(noon - timedelta(seconds=3), 60) == noon
    assert first_boundary(noon - timedelta(seconds=2.5), 60) == noon + timedelta(seconds=120)


def test_routers_are_told_of_both_arms_and_of_the_end(
    operator: Any, service: Any, path: str, fleet: str, active: Any, control_plane: Any
) -> None:
    before = config(service, fleet)
    assert [arm["name"] for arm in before["arms"]] == ["live"]
    experiment = start(operator, path)
    during = config(service, fleet)
    assert during["generation"] == before["generation"] + 1
    assert [(arm["name"], arm["policy"]) for arm in during["arms"]] == [
        ("treatment", "eldr_capped"),
        ("control", "join_shortest_queue"),
    ]
    assert during["arm_schedule"] == {
        "kind": "switchback",
        "seed": 1,
        "washout_seconds": 20,
        "window_seconds": 60,
    }
    stopped = operator.post(f"{path}/{experiment['id']}/stop", json={"reason": "enough"})
    assert stopped.json()["state"] == "stopped"
    after = config(service, fleet)
    assert (after["generation"], [arm["name"] for arm in after["arms"]]) == (
        during["generation"] + 1,
        ["live"],
    )
    again = operator.post(f"{path}/{experiment['id']}/stop", json={"reason": "enough"})
    assert again.status_code == 409


def test_an_experiment_needs_something_to_measure(operator: Any, path: str) -> None:
    refused = operator.post(path, json=WANTED)
    assert refused.status_code == 409
    assert "no active version" in refused.json()["detail"]


@pytest.mark.parametrize(
    ("command", "field"),
    [
        ({"control_policy": "magic"}, "control_policy"),
        ({"control_policy": "domain"}, "control_policy"),
        ({"control_policy": "eldr_capped"}, "control_policy"),
        ({"n_pairs": 0}, "n_pairs"),
        ({"window_seconds": 4}, "window_seconds"),
        ({"washout_seconds": 60}, "washout_seconds"),
        ({"seed": -1}, "seed"),
        ({"reason": ""}, "reason"),
        ({"arms": 3}, "arms"),
    ],
)
def test_what_cannot_be_is_refused(
    operator: Any, path: str, active: Any, command: dict[str, Any], field: str
) -> None:
    refused = operator.post(path, json=WANTED | command)
    assert (refused.status_code, refused.json()["field"]) == (422, field)


def test_one_at_a_time_and_nothing_changes_under_it(
    operator: Any, path: str, fleet: str, active: Any
) -> None:
    start(operator, path)
    assert operator.post(path, json=WANTED).status_code == 409
    tuned = operator.patch(
        f"/v1/fleets/{fleet}/settings", json={"reason": "x", "tau": 0.2}, headers={"If-Match": "*"}
    )
    assert tuned.status_code == 409


def test_a_viewer_only_looks(viewer: Any, path: str) -> None:
    assert viewer.post(path, json=WANTED).status_code == 403
    assert viewer.get(path).status_code == 200
    assert viewer.get(f"{path}/nothing").status_code == 404


def run_through(
    service: Any,
    fleet: str,
    control_plane: Any,
    telemetry: Any,
    experiment: dict[str, Any],
    hash_: str,
    routing: dict[str, Any],
) -> None:
    """Play a router: treatment 18 ms and 5 experts, control 20 ms and 6, and washouts that are wild."""
    clock = control_plane.clock
    assert routing["arm_schedule"]["kind"] == "switchback"
    from_epoch = int(datetime.fromisoformat(experiment["starts_at"]).timestamp()) // 60
    for index in range(from_epoch, from_epoch + 12):
        clock.now = datetime.fromtimestamp(index * 60 + 50, UTC)
        arm = telemetry.arm_of(routing, index)
        tpot_ms, experts = (18.0, 500.0) if arm == "treatment" else (20.0, 600.0)
        rows = [
            telemetry.row(
                arm=arm, version=hash_, n_requests=30, tpot_ms=tpot_ms,
                active_experts={"n_steps": 100, "sum_by_layer": [experts] * 3, "batch_sum": 400.0},
            )
        ]  # fmt: skip
        wild = [telemetry.row(arm=arm, version=hash_, n_requests=30, tpot_ms=500.0)]
        blobs = [
            telemetry.blob(seconds_ago=40, experiment_window=index, is_washout=True, rows=wild),
            telemetry.blob(seconds_ago=10, experiment_window=index, rows=rows),
        ]
        sent = service.post(
            f"/v1/fleets/{fleet}/telemetry", json={"v": 1, "router_id": "router-0", "blobs": blobs}
        )
        assert sent.json()["accepted_blobs"] == 2, sent.text


def test_a_whole_experiment_ends_by_itself_with_its_effects(
    operator: Any, viewer: Any, service: Any, admin: Any, path: str, fleet: str, active: Any,
    control_plane: Any, telemetry: Any,
) -> None:  # fmt: skip
    experiment = start(operator, path)
    routing = config(service, fleet)
    run_through(service, fleet, control_plane, telemetry, experiment, active["content_hash"], routing)
    tick(control_plane, fleet)
    running = viewer.get(f"{path}/{experiment['id']}").json()
    assert (running["state"], running["n_pairs_done"]) == ("running", 5)
    control_plane.clock.now = datetime.fromisoformat(experiment["ends_at"]) + timedelta(seconds=29)
    tick(control_plane, fleet)
    assert viewer.get(f"{path}/{experiment['id']}").json()["state"] == "running"
    control_plane.clock.advance(1)
    tick(control_plane, fleet)
    done = viewer.get(f"{path}/{experiment['id']}").json()
    assert (done["state"], done["n_pairs_done"], len(done["windows"])) == ("finished", 6, 12)
    effects = {effect["metric"]: effect for effect in done["effects"]}
    # 18 ms against 20 ms in each of six pairs, 5 experts a layer against 6; the washouts do not count.
    assert effects["tpot_p50_ms"]["mean_percent"] == pytest.approx(-10, abs=0.1)
    assert effects["tpot_p50_ms"]["interval_percent"] == pytest.approx([-10, -10], abs=0.1)
    assert effects["tpot_p50_ms"]["verdict"] == "lower"
    assert effects["active_experts"]["mean_percent"] == pytest.approx(-100 / 6)
    assert effects["ttft_p50_ms"]["verdict"] == "no_effect"
    assert [arm["name"] for arm in config(service, fleet)["arms"]] == ["live"]
    events = admin.get("/v1/audit", params={"fleet": fleet, "resource": "experiment"}).json()["items"]
    assert [(event["action"], event["actor"]) for event in events if event["resource"] == "experiment"] == [
        ("finish", "system:experiments"),
        ("start", "test-operator"),
    ]
    tick(control_plane, fleet)
    assert viewer.get(f"{path}/{experiment['id']}").json() == done
    assert viewer.get(path).json()["items"] == [done]


def test_a_stopped_experiment_keeps_its_windows_and_is_inconclusive(
    operator: Any,
    viewer: Any,
    service: Any,
    path: str,
    fleet: str,
    active: Any,
    control_plane: Any,
    telemetry: Any,
) -> None:
    experiment = start(operator, path)
    routing = config(service, fleet)
    run_through(service, fleet, control_plane, telemetry, experiment, active["content_hash"], routing)
    control_plane.clock.now = datetime.fromisoformat(experiment["starts_at"]) + timedelta(seconds=4 * 60)
    operator.post(f"{path}/{experiment['id']}/stop", json={"reason": "seen enough"})
    control_plane.clock.advance(600)
    tick(control_plane, fleet)
    stopped = viewer.get(f"{path}/{experiment['id']}").json()
    assert (stopped["state"], stopped["n_pairs_done"]) == ("stopped", 2)
    assert {effect["verdict"] for effect in stopped["effects"]} == {"inconclusive"}
    assert stopped["effects"][0]["mean_percent"] == pytest.approx(-10, abs=0.1)


def test_late_metrics_count_for_ten_minutes_after_the_end(
    operator: Any, viewer: Any, service: Any, admin: Any, path: str, fleet: str, active: Any,
    control_plane: Any, telemetry: Any,
) -> None:  # fmt: skip
    experiment = start(operator, path)
    routing = config(service, fleet)
    control_plane.clock.now = datetime.fromisoformat(experiment["ends_at"]) + timedelta(seconds=30)
    end = control_plane.clock.now
    tick(control_plane, fleet)
    finished = viewer.get(f"{path}/{experiment['id']}").json()
    assert (finished["state"], finished["n_pairs_done"]) == ("finished", 0)
    run_through(service, fleet, control_plane, telemetry, experiment, active["content_hash"], routing)
    control_plane.clock.now = end + timedelta(seconds=60)
    tick(control_plane, fleet)
    later = viewer.get(f"{path}/{experiment['id']}").json()
    assert later["n_pairs_done"] == 6
    assert later["effects"][0]["verdict"] == "lower"
    control_plane.clock.now = end + timedelta(seconds=600)
    tick(control_plane, fleet)
    assert viewer.get(f"{path}/{experiment['id']}").json() == later
    actions = [
        event["action"]
        for event in admin.get("/v1/audit", params={"fleet": fleet}).json()["items"]
        if event["resource"] == "experiment"
    ]
    assert actions == ["settle", "finish", "start"]
