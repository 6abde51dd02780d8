from dataclasses import replace

import pytest

HEADERS = {"Content-Type": "application/octet-stream", "X-Reason": "for a test"}


def test_a_pack_is_checked_and_listed(viewer, fleet, upload_trace, trace_of) -> None:
    made = upload_trace(trace_of(16), "monday")
    assert (made["name"], made["n_requests"], made["has_decode"], made["origin"]) == (
        "monday", 16, True, "upload",
    )  # fmt: skip
    without = upload_trace(trace_of(16, seed=2, has_decode=False), "prefill only")
    assert not without["has_decode"]
    listed = viewer.get(f"/v1/fleets/{fleet}/trace-packs").json()["items"]
    assert [pack["name"] for pack in listed] == ["prefill only", "monday"]
    assert viewer.get("/v1/audit?resource=trace_pack").json()["items"][0]["reason"] == "for a test"


def post(client, fleet: str, data: bytes, name: str = "pack"):
    return client.post(f"/v1/fleets/{fleet}/trace-packs?name={name}", content=data, headers=HEADERS)


def test_the_same_pack_twice_is_a_conflict(operator, fleet, upload_trace, trace_of, tmp_path) -> None:
    upload_trace(trace_of(16))
    again = post(operator, fleet, (tmp_path / "pack.safetensors").read_bytes(), "other name")
    assert again.status_code == 409


@pytest.mark.parametrize("data", [b"", b"not a pack", b"\x00" * 100])
def test_what_is_no_pack_is_refused(viewer, operator, fleet, data: bytes) -> None:
    assert post(operator, fleet, data).status_code == 422
    assert viewer.get(f"/v1/fleets/{fleet}/trace-packs").json()["items"] == []


def test_a_pack_over_the_limit_is_refused(control_plane, viewer, operator, fleet) -> None:
    control_plane.use_settings(replace(control_plane.settings, trace_pack_limit_bytes=10))
    assert post(operator, fleet, b"x" * 11).status_code == 413
    assert viewer.get(f"/v1/fleets/{fleet}/trace-packs").json()["items"] == []


def test_a_pack_of_another_model_is_refused(admin, operator, trace_of, upload_trace, tmp_path) -> None:
    shape = {"model": "other/moe", "n_layers": 3, "n_experts": 8, "top_k": 2}
    admin.post("/v1/fleets", json={"name": "other", "shape": shape, "reason": "r"})
    upload_trace(trace_of(16))
    refused = post(operator, "other", (tmp_path / "pack.safetensors").read_bytes())
    assert (refused.status_code, "other/moe" in refused.json()["detail"]) == (409, True)
