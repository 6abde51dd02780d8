"""Projections: of a calibration, of live traffic on it, and of a version that came without either."""

from dataclasses import replace
from typing import Any

import pytest

from controlplane.services.calibrate import claim_run
from controlplane.services.run_calibration import ClaimedRun, run_calibration


@pytest.fixture
def version_path(operator: Any, fleet: str, control_plane: Any, upload_trace: Any, trace_of: Any) -> str:
    """Path of a version that was fitted on 64 requests of two topics."""
    control_plane.use_settings(replace(control_plane.settings, calibration_splits=2))
    command = {"reason": "x", "n_clusters": 2, "trace_pack_id": upload_trace(trace_of())["id"]}
    run = operator.post(f"/v1/fleets/{fleet}/calibration-runs", json=command).json()
    with control_plane.change() as change:
        found = claim_run(change)
    assert found is not None
    claimed = ClaimedRun(run_id=found[0], epoch=found[1])
    run_calibration(control_plane.database, claimed, control_plane.settings, control_plane.clock)
    done = operator.get(f"/v1/fleets/{fleet}/calibration-runs/{run['id']}").json()
    assert done["error"] is None
    return f"/v1/fleets/{fleet}/versions/{done['version_id']}"


@pytest.fixture
def live(service: Any, fleet: str, telemetry: Any) -> None:
    events = [
        telemetry.event(f"r{i}", topic=i % 2, worker=f"decode-{i % 2}", seconds_ago=i) for i in range(10)
    ]
    answer = service.post(
        f"/v1/fleets/{fleet}/telemetry", json={"v": 1, "router_id": "router-0", "events": events}
    )
    assert answer.json()["accepted_events"] == 10


def distance(one: list[float], other: list[float]) -> float:
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) ** 0.5


def test_the_requests_of_a_calibration_lie_around_their_centroids(viewer: Any, version_path: str) -> None:
    found = viewer.get(f"{version_path}/projection").json()
    assert (found["is_live"], len(found["points"]), len(found["centroids"])) == (False, 64, 2)
    assert found["occupancy"] == found["reference_occupancy"] == [32, 32]
    # Two topics without a common expert: the first component tells them apart and explains most.
    assert found["explained_share"][0] > 0.6
    between = distance(*found["centroids"])
    for point in found["points"]:
        assert distance(point["coordinates"], found["centroids"][point["cluster"]]) < between / 2
        assert point["similarity"] > 0.7
        assert (point["at"], point["worker_id"]) == (None, None)


def test_live_requests_are_placed_on_the_same_components(viewer: Any, version_path: str, live: None) -> None:
    found = viewer.get(f"{version_path}/projection", params={"live": True}).json()
    assert (found["is_live"], len(found["points"])) == (True, 10)
    assert (found["occupancy"], found["reference_occupancy"]) == ([5, 5], [32, 32])
    points = {point["request_id"]: point for point in found["points"]}
    for point in points.values():
        other = found["centroids"][1 - point["cluster"]]
        assert distance(point["coordinates"], found["centroids"][point["cluster"]]) < distance(
            point["coordinates"], other
        )
    assert points["r0"]["cluster"] == points["r2"]["cluster"] != points["r1"]["cluster"]
    assert (points["r1"]["worker_id"], points["r0"]["worker_id"]) == ("decode-1", "decode-0")
    assert points["r0"]["at"] is not None


def test_points_are_bounded(viewer: Any, version_path: str, live: None) -> None:
    assert len(viewer.get(f"{version_path}/projection", params={"limit": 7}).json()["points"]) == 7
    newest = viewer.get(f"{version_path}/projection", params={"live": True, "limit": 3}).json()["points"]
    assert [point["request_id"] for point in newest] == ["r0", "r1", "r2"]
    refused = viewer.get(f"{version_path}/projection", params={"limit": 5001})
    assert (refused.status_code, refused.json()["field"]) == (422, "limit")


def test_an_uploaded_version_shows_live_requests_on_components_of_their_own(
    viewer: Any, fleet: str, upload_version: Any, version_of: Any, live: None
) -> None:
    path = f"/v1/fleets/{fleet}/versions/{upload_version(version_of())['id']}/projection"
    assert viewer.get(path).json()["points"] == []
    found = viewer.get(path, params={"live": True}).json()
    assert (len(found["points"]), found["occupancy"], found["reference_occupancy"]) == (10, [5, 5], [0, 0])


def test_the_experts_of_a_cluster(
    viewer: Any, fleet: str, upload_version: Any, version_of: Any, live: None
) -> None:
    path = f"/v1/fleets/{fleet}/versions/{upload_version(version_of())['id']}/clusters"
    found = viewer.get(f"{path}/1/experts").json()
    # Each of the two tokens' choices a layer falls evenly on the four experts of topic 1.
    assert (found["n_requests"], found["use"]) == (5, [[0, 0, 0, 0, 0.5, 0.5, 0.5, 0.5]] * 3)
    refused = viewer.get(f"{path}/2/experts")
    assert (refused.status_code, refused.json()["limit"]) == (422, "from 0 to 1, the clusters of version 1")


def test_no_traffic_yet(viewer: Any, version_path: str) -> None:
    assert viewer.get(f"{version_path}/projection", params={"live": True}).json()["points"] == []
    assert viewer.get(f"{version_path}/clusters/0/experts").json()["n_requests"] == 0
    assert viewer.get(f"{version_path}x/projection").status_code == 404
