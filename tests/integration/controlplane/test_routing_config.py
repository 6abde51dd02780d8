import httpx
import pytest

from eldr_runtime.experiment_design import ScheduleKind
from eldr_runtime.routing_config import RoutingConfig

ROUTER = {
    "v": 1,
    "router_id": "router-0",
    "generation_applied": 1,
    "config_source": "control-plane",
    "in_flight": {"decode-0": 3},
    "dropped_events": 0,
    "url": "http://127.0.0.1:8800/",
}


@pytest.fixture
def path(fleet: str) -> str:
    return f"/v1/fleets/{fleet}"


def config_of(client: httpx.Client, path: str) -> RoutingConfig:
    return RoutingConfig.from_json(client.get(f"{path}/routing-config").content)


def test_a_new_fleet_routes_by_load_on_one_arm(service, path: str) -> None:
    config = config_of(service, path)
    assert (config.generation, config.version, config.workers) == (1, None, ())
    assert config.arm_schedule.kind is ScheduleKind.SINGLE
    assert [(arm.name, arm.policy, arm.tau, arm.load_cap) for arm in config.arms] == [
        ("live", "eldr_capped", 0.1, 1.25)
    ]
    assert config.model.to_shape().n_experts == 8


def test_unchanged_is_304_and_a_change_is_a_new_etag(service, operator, path: str) -> None:
    first = service.get(f"{path}/routing-config")
    same = service.get(f"{path}/routing-config", headers={"If-None-Match": first.headers["etag"]})
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", '"1"')
    operator.patch(f"{path}/settings", json={"reason": "x", "tau": 0.4}, headers={"If-Match": '"1"'})
    changed = service.get(f"{path}/routing-config", headers={"If-None-Match": first.headers["etag"]})
    assert (changed.status_code, changed.headers["etag"]) == (200, '"2"')
    assert changed.json()["arms"][0]["tau"] == 0.4


def test_the_active_version_is_named_with_where_to_fetch_it(
    service, operator, path: str, upload_version, version_of
) -> None:
    version = upload_version(version_of())
    operator.post(f"{path}/versions/{version['id']}/promote", json={"reason": "go"})
    config = config_of(service, path)
    assert config.version is not None
    assert config.version.content_hash == version["content_hash"]
    assert service.get(config.version.artifact_url).status_code == 200


def test_policies_without_a_cap_carry_none_and_no_cap_binds_nowhere(service, operator, path: str) -> None:
    def tune(revision: int, **knobs: object) -> tuple[str, float | None]:
        operator.patch(
            f"{path}/settings", json={"reason": "x"} | knobs, headers={"If-Match": f'"{revision}"'}
        )
        arm = config_of(service, path).arms[0]
        return arm.policy.value, arm.load_cap

    assert tune(1, policy="eldr") == ("eldr", None)
    assert tune(2, policy="eldr_capped") == ("eldr_capped", 1.25)
    assert tune(3, load_cap=0) == ("eldr_capped", 1000.0)


def test_a_control_share_takes_windows(service, operator, path: str) -> None:
    operator.patch(
        f"{path}/settings", json={"reason": "watch", "control_share": 0.25}, headers={"If-Match": '"1"'}
    )
    config = config_of(service, path)
    assert config.arm_schedule.kind is ScheduleKind.CANARY
    assert [(arm.name, arm.share) for arm in config.arms] == [("live", 0.75), ("control", 0.25)]


def test_a_running_experiment_makes_arms_take_turns(
    control_plane, service, path: str, fleet: str, running_experiment
) -> None:
    with control_plane.change() as change:
        change.session.add(running_experiment(fleet, change.now, seed=7, control_policy="round_robin"))
    config = config_of(service, path)
    assert config.arm_schedule.kind is ScheduleKind.SWITCHBACK
    assert (config.arm_schedule.seed, config.arm_schedule.window_seconds) == (7, 60)
    assert [(arm.name, arm.policy) for arm in config.arms] == [
        ("treatment", "eldr_capped"),
        ("control", "round_robin"),
    ]


def test_routers_acknowledge_and_lag(control_plane, service, viewer, operator, path: str) -> None:
    def beat(**changes: object) -> int:
        return service.post(f"{path}/routers/heartbeat", json=ROUTER | changes).status_code

    def status() -> tuple[int | None, bool]:
        (router,) = viewer.get(f"{path}/routers").json()["items"]
        return router["generation_applied"], router["is_lagging"]

    assert beat() == 204
    assert status() == (1, False)
    control_plane.clock.advance(5.9)
    assert status() == (1, False)
    control_plane.clock.advance(0.2)
    assert status() == (1, True), "three beats missed"
    operator.patch(f"{path}/settings", json={"reason": "x", "tau": 0.4}, headers={"If-Match": '"1"'})
    beat()
    assert status() == (1, False), "a new generation is not late yet"
    control_plane.clock.advance(6.1)
    beat()
    assert status() == (1, True), "the generation is old by three beats"
    beat(generation_applied=2)
    assert status() == (2, False)
    assert viewer.get(f"{path}/status").json()["routers"][0]["in_flight"] == {"decode-0": 3}


def test_workers_learn_where_decode_profiles_go(service, path: str, fleet: str, worker_heartbeat) -> None:
    service.post(f"{path}/routers/heartbeat", json=ROUTER)
    lease = service.post(f"{path}/workers/heartbeat", json=worker_heartbeat | {"fleet": fleet})
    assert lease.json()["decode_profile_urls"] == ["http://127.0.0.1:8800/v1/decode-profiles"]


def test_a_router_elsewhere_is_refused(service, viewer, path: str) -> None:
    refused = service.post(f"{path}/routers/heartbeat", json=ROUTER | {"url": "http://192.0.2.1"})
    assert (refused.status_code, refused.json()["field"]) == (422, "url")
    assert viewer.get(f"{path}/routers").json()["items"] == []


def test_who_may_read_the_config(viewer, anonymous, path: str) -> None:
    assert viewer.get(f"{path}/routing-config").status_code == 200
    assert anonymous.get(f"{path}/routing-config").status_code == 401


@pytest.mark.parametrize(("reported", "told"), [("push", "push"), ("pull", "pull"), (None, "pull")])
def test_routers_are_told_how_a_worker_hands_over(
    service, path: str, worker_heartbeat, reported: str | None, told: str
) -> None:
    beat = service.post(f"{path}/workers/heartbeat", json=worker_heartbeat | {"transfer_mode": reported})
    assert beat.status_code == 200, beat.text
    (worker,) = config_of(service, path).workers
    assert worker.transfer_mode == told
