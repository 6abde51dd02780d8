"""Telemetry over HTTP: idempotence, order, lateness, and the samples that become of events."""

import json
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from controlplane.services.place_samples import open_counts
from controlplane.services.roll_up_metrics import roll_up_metrics
from controlplane.storage.repositories import samples
from controlplane.storage.repositories.samples import SampleFilter
from eldr_runtime.count_codec import ExpertCounts, encode_counts
from eldr_runtime.model_shape import ModelShape


@pytest.fixture
def path(fleet: str) -> str:
    return f"/v1/fleets/{fleet}/telemetry"


def send(service: Any, path: str, telemetry: Any, *, events: Any = (), blobs: Any = ()) -> dict[str, int]:
    body = {"v": 1, "router_id": "router-0", "events": list(events), "blobs": list(blobs)}
    answer = service.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_repeated_batch_is_counted_and_ignored(service: Any, path: str, telemetry: Any) -> None:
    events, blobs = [telemetry.event("r1"), telemetry.event("r2")], [telemetry.blob()]
    first = send(service, path, telemetry, events=events, blobs=blobs)
    assert first == {"accepted_events": 2, "accepted_blobs": 1, "duplicates": 0, "out_of_time": 0}
    again = send(service, path, telemetry, events=events, blobs=blobs)
    assert again == {"accepted_events": 0, "accepted_blobs": 0, "duplicates": 3, "out_of_time": 0}


def test_an_event_twice_in_one_batch_is_one_sample(service: Any, path: str, telemetry: Any) -> None:
    found = send(service, path, telemetry, events=[telemetry.event("r1"), telemetry.event("r1")])
    assert (found["accepted_events"], found["duplicates"]) == (1, 1)


def test_blobs_differ_by_window_experiment_window_and_sequence(
    service: Any, path: str, telemetry: Any
) -> None:
    blobs = [
        telemetry.blob(),
        telemetry.blob(sequence=1),
        telemetry.blob(experiment_window=8),
        telemetry.blob(seconds_ago=20),
    ]
    assert send(service, path, telemetry, blobs=blobs)["accepted_blobs"] == 4


def test_what_is_too_late_or_from_the_future_is_left_out(service: Any, path: str, telemetry: Any) -> None:
    blobs = [
        telemetry.blob(seconds_ago=670),
        telemetry.blob(seconds_ago=-70),
        telemetry.blob(seconds_ago=600),
    ]
    found = send(service, path, telemetry, blobs=blobs)
    assert (found["accepted_blobs"], found["out_of_time"]) == (1, 2)


def test_only_services_report(operator: Any, viewer: Any, path: str) -> None:
    for client in (operator, viewer):
        assert client.post(path, json={"v": 1, "router_id": "r"}).status_code == 403


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"v": 9, "router_id": "r"}', b'{"v": 1}'])
def test_what_is_no_batch_is_refused_and_says_why(service: Any, path: str, body: bytes) -> None:
    refused = service.post(path, content=body, headers={"Content-Type": "application/json"})
    assert refused.status_code == 422
    assert refused.json()["limit"]


def test_a_blob_of_another_router_is_refused(service: Any, path: str, telemetry: Any) -> None:
    blob = telemetry.blob() | {"router_id": "router-1"}
    refused = service.post(path, json={"v": 1, "router_id": "router-0", "blobs": [blob]})
    assert (refused.status_code, refused.json()["value"]) == (422, "router-1")


def test_an_unknown_fleet_is_not_found(service: Any, fleet: str) -> None:
    refused = service.post("/v1/fleets/other/telemetry", json={"v": 1, "router_id": "r"})
    assert refused.status_code == 404


def test_samples_keep_their_counts_and_are_placed_by_their_version(
    service: Any,
    path: str,
    telemetry: Any,
    control_plane: Any,
    upload_version: Any,
    version_of: Any,
    fleet: str,
) -> None:
    version = version_of()
    upload_version(version)
    events = [
        telemetry.event("r1", topic=0, version=version.content_hash),
        telemetry.event("r2", topic=1, version=version.content_hash),
    ]
    send(service, path, telemetry, events=events)
    with control_plane.database.read() as session:
        stored = samples.read_counts(session, fleet, SampleFilter(), limit=10, needs_decode=True)
    assert {each.request_id: each.cluster for each in stored} == {"r1": 0, "r2": 1}
    # Each topic uses its half of the experts evenly, as its centroid does.
    assert [each.similarity for each in stored] == pytest.approx([1.0, 1.0], abs=1e-5)
    assert {each.version_number for each in stored} == {1}
    opened = open_counts([each.prefill_counts for each in stored], version.shape)
    assert {each.request_id: counts[0].tolist() for each, counts in zip(stored, opened, strict=True)} == {
        "r1": [5, 5, 5, 5, 0, 0, 0, 0],
        "r2": [0, 0, 0, 0, 5, 5, 5, 5],
    }
    assert [each.decode_steps for each in stored] == [20, 20]


def test_counts_of_another_model_are_left_out_and_the_decision_stays(
    service: Any, path: str, telemetry: Any, control_plane: Any, viewer: Any, fleet: str, caplog: Any
) -> None:
    event = telemetry.event("r1")
    shape = ModelShape(model="other/moe", n_layers=3, n_experts=8, top_k=2)
    counts = np.full((3, 8), 5, dtype=np.uint32)
    event["counts"] = encode_counts(ExpertCounts(shape=shape, counts=counts, tokens=20, covered=20))
    assert send(service, path, telemetry, events=[event])["accepted_events"] == 1
    with control_plane.database.read() as session:
        assert samples.count_counts(session, fleet, SampleFilter()) == 0
        assert samples.find_decision(session, fleet, "r1") is not None
    assert "counts of request r1 are refused" in caplog.text


def test_decisions_say_why_a_request_went_where(
    service: Any, path: str, telemetry: Any, viewer: Any, fleet: str
) -> None:
    send(service, path, telemetry, events=[telemetry.event("r1"), telemetry.event("r2", worker="decode-1")])
    base = f"/v1/fleets/{fleet}/decisions"
    items = viewer.get(base).json()["items"]
    assert {item["request_id"] for item in items} == {"r1", "r2"}
    one = viewer.get(f"{base}/r2").json()
    assert (one["decode_worker"], one["reason"], one["outcome"]) == (
        "decode-1",
        "within_band",
        "completed",
    )
    assert one["similarities"] == {"decode-0": 0.9, "decode-1": 0.5}
    assert viewer.get(f"{base}/nobody").status_code == 404
    assert [
        item["request_id"] for item in viewer.get(base, params={"worker": "decode-1"}).json()["items"]
    ] == ["r2"]
    first = viewer.get(base, params={"limit": 1}).json()
    rest = viewer.get(base, params={"limit": 1, "cursor": first["next_cursor"]}).json()
    assert {first["items"][0]["request_id"], rest["items"][0]["request_id"]} == {"r1", "r2"}


def test_metrics_are_the_same_whatever_the_order(
    service: Any, path: str, telemetry: Any, control_plane: Any, viewer: Any, fleet: str
) -> None:
    blobs = [telemetry.blob(seconds_ago=seconds, n_requests=n) for seconds, n in ((10, 3), (30, 4), (20, 5))]
    for blob in (blobs[2], blobs[0], blobs[2], blobs[1]):
        send(service, path, telemetry, blobs=[blob])
        with control_plane.change("system") as change:
            roll_up_metrics(change, fleet)
    since = (control_plane.clock.now - timedelta(seconds=60)).isoformat()
    points = viewer.get(
        f"/v1/fleets/{fleet}/metrics", params={"by": "fleet", "since": since, "step_seconds": 10}
    ).json()["items"]
    assert [point["n_requests"] for point in points] == [4, 5, 3]
    assert [point["tpot_p50_ms"] for point in points] == pytest.approx([20.0] * 3, rel=1e-3)
    assert [point["active_experts"] for point in points] == [6.0] * 3
    assert [point["mean_batch"] for point in points] == [4.0] * 3
    (minute,) = viewer.get(
        f"/v1/fleets/{fleet}/metrics", params={"by": "fleet", "since": since, "step_seconds": 60}
    ).json()["items"]
    assert minute["n_requests"] == 12
    assert json.dumps(minute)
