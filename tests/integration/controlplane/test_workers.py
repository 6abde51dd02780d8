import threading
from dataclasses import replace

import httpx
import pytest
from sqlalchemy import event

from controlplane.services.renew_lease import expire_leases, grant_leases_anew


@pytest.fixture
def beat(service: httpx.Client, fleet: str, worker_heartbeat):
    def send(**changes: object) -> httpx.Response:
        return service.post(f"/v1/fleets/{fleet}/workers/heartbeat", json=worker_heartbeat | changes)

    return send


def generation(client: httpx.Client, fleet: str) -> int:
    return client.get(f"/v1/fleets/{fleet}/status").json()["generation"]


def states(viewer: httpx.Client, fleet: str) -> dict[str, str]:
    return {w["worker_id"]: w["state"] for w in viewer.get(f"/v1/fleets/{fleet}/workers").json()["items"]}


def run_tick(control_plane) -> dict[str, list[str]]:
    with control_plane.change("system") as change:
        return expire_leases(change)


def test_a_heartbeat_registers_and_grants_a_lease(beat, viewer, service, fleet) -> None:
    lease = beat()
    assert lease.status_code == 200, lease.text
    assert lease.json() == {
        "worker_id": "decode-0",
        "state": "ready",
        "lease_seconds": 10.0,
        "heartbeat_seconds": 2.0,
        "decode_profile_urls": [],
        "decode_profile_share": 1.0,
    }
    assert states(viewer, fleet) == {"decode-0": "ready"}
    status = viewer.get(f"/v1/fleets/{fleet}/status").json()
    assert (status["n_ready_decode"], status["n_ready_prefill"], status["generation"]) == (1, 0, 2)


def test_only_what_routers_must_know_raises_the_generation(beat, viewer, service, fleet) -> None:
    beat()
    assert generation(viewer, fleet) == 2
    for same in ({}, {}, {"engine_version": "0.12"}, {"self_test": "failed"}):
        beat(**same)
        assert generation(viewer, fleet) == 2
    for n_changes, changed in enumerate(
        (
            {"state": "draining"},
            {"state": "ready"},
            {"transfer_mode": "push"},
            {"transfer_mode": "pull", "url": "http://127.0.0.1:9001"},
            {"url": "http://127.0.0.1:9001", "capacity": 32},
        )
    ):
        beat(**changed)
        assert generation(viewer, fleet) == 3 + n_changes
    assert beat(worker_id="prefill-0", role="prefill").status_code == 200
    assert generation(viewer, fleet) == 8


def test_an_unchanged_heartbeat_is_one_update(beat, control_plane, service, fleet) -> None:
    beat()
    beat()
    statements: list[str] = []
    engine = control_plane.database._engine
    listener = lambda *args: statements.append(args[2])  # noqa: E731
    event.listen(engine, "before_cursor_execute", listener)
    beat()
    event.remove(engine, "before_cursor_execute", listener)
    verbs = [statement.split()[0] for statement in statements if statement.split()[0] in ("UPDATE", "INSERT")]
    assert verbs == ["UPDATE"]


def test_a_worker_is_lost_when_its_lease_runs_out_and_comes_back(
    beat, control_plane, viewer, service, fleet
) -> None:
    beat()
    control_plane.clock.advance(9.9)
    assert states(viewer, fleet) == {"decode-0": "ready"}
    assert run_tick(control_plane) == {}
    control_plane.clock.advance(0.1)
    assert states(viewer, fleet) == {"decode-0": "lost"}, "known at a read, also before the tick"
    assert generation(viewer, fleet) == 2
    assert run_tick(control_plane) == {fleet: ["decode-0"]}
    assert run_tick(control_plane) == {}
    assert generation(viewer, fleet) == 3
    assert beat().json()["state"] == "ready"
    assert generation(viewer, fleet) == 4
    actions = [e["action"] for e in viewer.get("/v1/audit?resource=worker").json()["items"]]
    assert actions == ["change", "lose", "join"]


def test_a_poll_notes_a_lost_worker_before_the_tick(beat, control_plane, service, viewer, fleet) -> None:
    beat()
    path = f"/v1/fleets/{fleet}/routing-config"
    etag = service.get(path).headers["etag"]
    assert service.get(path, headers={"If-None-Match": etag}).status_code == 304
    control_plane.clock.advance(10)
    changed = service.get(path, headers={"If-None-Match": etag})
    assert (changed.status_code, changed.headers["etag"]) == (200, '"3"')
    assert [worker["state"] for worker in changed.json()["workers"]] == ["lost"]


def test_a_control_plane_that_was_away_loses_no_worker_that_could_not_report(
    beat, control_plane, service, viewer, fleet
) -> None:
    beat(worker_id="decode-0")
    beat(worker_id="gone-before")
    control_plane.clock.advance(5)
    beat(worker_id="decode-0")
    control_plane.clock.advance(5)
    assert run_tick(control_plane) == {fleet: ["gone-before"]}
    before = generation(viewer, fleet)
    control_plane.clock.advance(60)
    grant_leases_anew(control_plane.database, control_plane.settings, control_plane.clock.now)
    config = service.get(f"/v1/fleets/{fleet}/routing-config").json()
    assert {worker["id"]: worker["state"] for worker in config["workers"]} == {
        "decode-0": "ready",
        "gone-before": "lost",
    }
    assert config["generation"] == before
    control_plane.clock.advance(10)
    assert run_tick(control_plane) == {fleet: ["decode-0"]}, "it had time enough to report"


def test_two_ticks_at_once_lose_a_worker_once(beat, control_plane, service, viewer, fleet) -> None:
    for number in range(3):
        beat(worker_id=f"decode-{number}")
    control_plane.clock.advance(11)
    lost: list[dict[str, list[str]]] = []
    threads = [threading.Thread(target=lambda: lost.append(run_tick(control_plane))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(len(each.get(fleet, [])) for each in lost) == [0, 0, 0, 3]
    assert generation(viewer, fleet) == 5


def test_draining_outranks_what_the_worker_says(beat, viewer, operator, service, fleet) -> None:
    beat()
    path = f"/v1/fleets/{fleet}/workers/decode-0"
    drained = operator.post(f"{path}/drain", json={"reason": "new driver"})
    assert drained.json()["state"] == "draining"
    assert beat().json()["state"] == "draining"
    assert beat(capacity=32).json()["state"] == "draining"
    assert operator.post(f"{path}/drain", json={"reason": "again"}).status_code == 409
    assert operator.post(f"{path}/resume", json={"reason": "done"}).json()["state"] == "ready"
    assert beat(capacity=32).json()["state"] == "ready"
    assert generation(viewer, fleet) == 5


def test_a_worker_is_removed_when_it_serves_no_more(
    beat, control_plane, viewer, operator, service, fleet
) -> None:
    beat()
    path = f"/v1/fleets/{fleet}/workers/decode-0"
    headers = {"X-Reason": "gone for good"}
    assert operator.delete(path, headers=headers).status_code == 409
    control_plane.clock.advance(11)
    assert operator.delete(path, headers=headers).json()["state"] == "lost"
    assert states(viewer, fleet) == {}
    assert operator.delete(path, headers=headers).status_code == 404


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data",
        "http://example.org:80",
        "http://127.0.0.1.example.org:80",
        "http://[::ffff:169.254.169.254]/",
        "http://user:secret@127.0.0.1:80",
        "file:///etc/passwd",
        "http://2130706433/",
    ],
)
def test_a_worker_url_outside_the_allow_list_is_refused(beat, viewer, service, fleet, url: str) -> None:
    refused = beat(url=url)
    assert (refused.status_code, refused.json()["field"]) == (422, "url")
    assert states(viewer, fleet) == {}
    assert generation(viewer, fleet) == 1


def test_the_allow_list_takes_names_addresses_and_networks(beat, control_plane, service, fleet) -> None:
    hosts = "10.1.0.0/16, worker.internal,192.0.2.7"
    control_plane.use_settings(replace(control_plane.settings, worker_hosts=hosts))
    for host, status in (
        ("10.1.255.1", 200),
        ("10.2.0.1", 422),
        ("Worker.Internal", 200),
        ("192.0.2.7", 200),
        ("127.0.0.1", 422),
    ):
        assert beat(url=f"http://{host}:80").status_code == status, host


def test_a_worker_of_another_model_is_refused(beat, viewer, service, fleet) -> None:
    refused = beat(model="other/moe")
    assert (refused.status_code, "other/moe" in refused.json()["detail"]) == (409, True)
    assert beat(fleet="elsewhere").json()["field"] == "fleet"
    assert states(viewer, fleet) == {}


def test_a_known_worker_cannot_change_its_model(beat, viewer, service, fleet) -> None:
    beat()
    assert beat(model="other/moe").status_code == 409
    assert states(viewer, fleet) == {"decode-0": "ready"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("state", "lost"),
        ("capacity", 0),
        ("role", "both"),
        ("v", 99),
        ("worker_id", ""),
        ("worker_id", "two words"),
    ],
)
def test_a_heartbeat_outside_its_limits_names_the_field(
    beat, service, fleet, field: str, value: object
) -> None:
    refused = beat(**{field: value})
    assert (refused.status_code, refused.json()["field"]) == (422, field)
    # Taken in, it would keep all routers of the fleet from every later configuration.
    assert service.get(f"/v1/fleets/{fleet}/routing-config").status_code == 200


def test_only_services_report(viewer, operator, fleet, worker_heartbeat) -> None:
    for client in (viewer, operator):
        answer = client.post(f"/v1/fleets/{fleet}/workers/heartbeat", json=worker_heartbeat)
        assert answer.status_code == 403
