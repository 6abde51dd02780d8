import pytest

from controlplane.domain.alerts import Role


def command(name: str = "one") -> dict[str, object]:
    shape = {"model": "toy/moe", "n_layers": 3, "n_experts": 8, "top_k": 2}
    return {"name": name, "shape": shape, "reason": "a new model"}


def test_a_fleet_is_made_once(admin, viewer) -> None:
    made = admin.post("/v1/fleets", json=command())
    assert (made.status_code, made.headers["etag"]) == (201, '"1"')
    fleet = made.json()
    assert (fleet["kv_block_size_tokens"], fleet["retention_days"]) == (16, 14)
    assert viewer.get("/v1/fleets/one").json() == fleet
    again = admin.post("/v1/fleets", json=command())
    assert (again.status_code, "one" in again.json()["detail"]) == (409, True)


def test_an_unknown_latency_preset_is_named(admin) -> None:
    refused = admin.post("/v1/fleets", json=command() | {"latency_preset": "abacus"})
    assert (refused.status_code, refused.json()["field"]) == (422, "latency_preset")
    assert "one of" in refused.json()["detail"]
    assert admin.get("/v1/fleets/one").status_code == 404


def test_fleets_are_listed_by_name_page_by_page(admin, viewer) -> None:
    for name in ("b", "a", "c"):
        admin.post("/v1/fleets", json=command(name))
    first = viewer.get("/v1/fleets?limit=2").json()
    assert [fleet["name"] for fleet in first["items"]] == ["a", "b"]
    second = viewer.get(f"/v1/fleets?limit=2&cursor={first['next_cursor']}").json()
    assert ([fleet["name"] for fleet in second["items"]], second["next_cursor"]) == (["c"], None)
    assert viewer.get("/v1/fleets?limit=501").json()["field"] == "limit"


def test_making_a_fleet_is_audited(admin) -> None:
    admin.post("/v1/fleets", json=command(), headers={"X-Request-Id": "made-it"})
    (event,) = admin.get("/v1/audit?fleet=one").json()["items"]
    assert (event["action"], event["request_id"], event["reason"]) == ("create", "made-it", "a new model")
    assert admin.get("/v1/audit?fleet=one&since=2026-03-01T12:00:01Z").json()["items"] == []
    assert admin.get("/v1/audit?since=2026-03-01").status_code == 422


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR, Role.SERVICE])
def test_only_an_admin_makes_a_fleet(api_as, role: Role) -> None:
    assert api_as(role).post("/v1/fleets", json=command()).status_code == 403


def test_a_new_fleet_has_a_status(viewer, fleet: str) -> None:
    status = viewer.get(f"/v1/fleets/{fleet}/status").json()
    assert (status["generation"], status["active_version_number"]) == (1, None)
    assert (status["policy"], status["tau"]) == ("eldr_capped", 0.1)
    assert (status["n_ready_decode"], status["n_open_alerts"], status["routers"]) == (0, 0, [])
