import hashlib
from dataclasses import replace

import httpx
import numpy as np
import pytest

from controlplane.settings import Settings
from controlplane.storage.models.versions import ArtifactRow
from eldr_runtime.centroid_version import from_bytes, to_bytes
from eldr_runtime.model_shape import ModelShape

HEADERS = {"Content-Type": "application/octet-stream", "X-Reason": "for a test"}
MIXED = np.tile(np.eye(2, dtype=np.float32), (1, 4))  # each centroid has half of each topic


def post_version(client: httpx.Client, fleet: str, data: bytes, **headers: str) -> httpx.Response:
    return client.post(f"/v1/fleets/{fleet}/versions", content=data, headers=HEADERS | headers)


def assert_nothing_stored(control_plane, viewer: httpx.Client, fleet: str) -> None:
    assert viewer.get(f"/v1/fleets/{fleet}/versions").json()["items"] == []
    assert {event["resource"] for event in viewer.get("/v1/audit").json()["items"]} <= {"fleet", "key"}
    with control_plane.database.read() as session:
        assert session.query(ArtifactRow).count() == 0


def test_an_uploaded_version_is_a_candidate_whose_artifact_comes_back(
    viewer, operator, service, fleet, version_of
) -> None:
    version = version_of()
    made = post_version(operator, fleet, to_bytes(version))
    assert made.status_code == 201, made.text
    value = made.json()
    assert (value["number"], value["state"], value["n_centroids"]) == (1, "candidate", 2)
    assert value["content_hash"] == version.content_hash
    assert viewer.get(f"/v1/fleets/{fleet}/versions/{value['id']}").json() == value
    artifact = service.get(f"/v1/fleets/{fleet}/artifacts/{version.content_hash}")
    assert from_bytes(artifact.content, expected_hash=version.content_hash).n_centroids == 2
    event = viewer.get("/v1/audit?resource=version").json()["items"][0]
    assert (event["actor"], event["reason"], event["before"]) == ("test-operator", "for a test", None)


def test_the_same_content_is_stored_once(operator, fleet, version_of) -> None:
    assert post_version(operator, fleet, to_bytes(version_of())).status_code == 201
    again = post_version(operator, fleet, to_bytes(version_of()))
    assert (again.status_code, "version 1" in again.json()["detail"]) == (409, True)


def test_a_version_for_another_model_is_refused(control_plane, viewer, operator, fleet, version_of) -> None:
    other = version_of(shape=ModelShape(model="other/moe", n_layers=3, n_experts=8, top_k=2))
    refused = post_version(operator, fleet, to_bytes(other))
    assert refused.status_code == 409
    assert "other/moe" in refused.json()["detail"]
    assert "toy/moe" in refused.json()["detail"]
    assert_nothing_stored(control_plane, viewer, fleet)


@pytest.mark.parametrize("data", [b"", b"not safetensors at all", b"\x80\x04K\x01."])
def test_what_is_no_safetensors_is_refused(control_plane, viewer, operator, fleet, data: bytes) -> None:
    refused = post_version(operator, fleet, data)
    assert refused.status_code == 422
    assert refused.headers["content-type"] == "application/problem+json"
    assert "not a safetensors file" in refused.json()["detail"]
    assert_nothing_stored(control_plane, viewer, fleet)


def test_a_changed_byte_breaks_the_hash(control_plane, viewer, operator, fleet, version_of) -> None:
    data = bytearray(to_bytes(version_of()))
    needle = np.float32(0.25).tobytes()  # mean_use; still a valid share after the change
    data[data.index(needle) : data.index(needle) + 4] = np.float32(0.5).tobytes()
    refused = post_version(operator, fleet, bytes(data))
    assert (refused.status_code, "content hash" in refused.json()["detail"]) == (422, True)
    assert_nothing_stored(control_plane, viewer, fleet)


@pytest.mark.parametrize("is_announced", [True, False])
def test_an_upload_over_the_limit_is_refused(
    control_plane, viewer, operator, fleet, is_announced: bool
) -> None:
    control_plane.use_settings(replace(control_plane.settings, artifact_limit_bytes=1000))
    body = b"x" * 1001 if is_announced else (b"x" * 500 for _ in range(3))
    refused = operator.post(f"/v1/fleets/{fleet}/versions", content=body, headers=HEADERS)
    assert refused.status_code == 413
    assert refused.json()["limit"] == "at most 1000 bytes"
    assert_nothing_stored(control_plane, viewer, fleet)


def test_default_upload_limit_is_64_mib() -> None:
    assert Settings().artifact_limit_bytes == 64 * 1024 * 1024


def test_an_upload_needs_its_type_and_a_reason(operator, fleet, version_of) -> None:
    data = to_bytes(version_of())
    assert post_version(operator, fleet, data, **{"Content-Type": "text/plain"}).status_code == 400
    assert post_version(operator, fleet, data, **{"X-Reason": "x" * 1001}).json()["field"] == "reason"
    missing = operator.post(
        f"/v1/fleets/{fleet}/versions", content=data, headers={"Content-Type": HEADERS["Content-Type"]}
    )
    assert (missing.status_code, missing.json()["field"]) == (422, "X-Reason")


def test_a_viewer_uploads_nothing(control_plane, viewer, fleet, version_of) -> None:
    assert post_version(viewer, fleet, to_bytes(version_of())).status_code == 403
    assert_nothing_stored(control_plane, viewer, fleet)


def test_a_rejected_candidate_stays_rejected(operator, fleet, upload_version, version_of) -> None:
    version = upload_version(version_of())
    path = f"/v1/fleets/{fleet}/versions/{version['id']}"
    rejected = operator.post(f"{path}/reject", json={"reason": "not this one"})
    assert rejected.json()["state"] == "rejected"
    assert operator.post(f"{path}/reject", json={"reason": "again"}).status_code == 409
    promoted = operator.post(f"{path}/promote", json={"reason": "after all", "is_override": True})
    assert (promoted.status_code, "rejected" in promoted.json()["detail"]) == (409, True)


def test_versions_are_listed_newest_first_page_by_page(viewer, fleet, upload_version, version_of) -> None:
    for seed in (1, 2, 3):
        upload_version(version_of(seed=seed))
    first = viewer.get(f"/v1/fleets/{fleet}/versions?limit=2").json()
    second = viewer.get(f"/v1/fleets/{fleet}/versions?limit=2&cursor={first['next_cursor']}").json()
    assert [item["number"] for item in first["items"] + second["items"]] == [3, 2, 1]
    assert second["next_cursor"] is None
    assert viewer.get(f"/v1/fleets/{fleet}/versions?cursor=abc").status_code == 422


def test_unknown_ids_are_404(viewer, fleet) -> None:
    for path in ("versions/none", "artifacts/" + hashlib.sha256().hexdigest()):
        assert viewer.get(f"/v1/fleets/{fleet}/{path}").status_code == 404
    assert viewer.get("/v1/fleets/none/versions").status_code == 404
