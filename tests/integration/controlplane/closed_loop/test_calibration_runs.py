"""Calibration runs: what is refused, how a run ends, and that it is never doubled."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from controlplane.services.calibrate import claim_run, release_run
from controlplane.services.keep_reference import read_drift, read_projection
from controlplane.services.run_calibration import ClaimedRun, Progress, Superseded, run_calibration
from controlplane.services.sample_traces import LiveTraffic, sample_trace
from controlplane.storage.repositories import version_references
from eldr_runtime.errors import Cancelled

WANTED = {"reason": "try it", "n_clusters": 2}


@pytest.fixture
def path(fleet: str, control_plane: Any) -> str:
    control_plane.use_settings(
        replace(control_plane.settings, calibration_minimum_samples=40, calibration_splits=2)
    )
    return f"/v1/fleets/{fleet}/calibration-runs"


def start(operator: Any, path: str, **command: Any) -> dict[str, Any]:
    answer = operator.post(path, json=WANTED | command)
    assert answer.status_code == 202, answer.text
    return answer.json()


def claim(control_plane: Any) -> ClaimedRun:
    with control_plane.change("system:calibration") as change:
        found = claim_run(change)
    assert found is not None
    return ClaimedRun(run_id=found[0], epoch=found[1])


def carry_out(control_plane: Any, claimed: ClaimedRun) -> None:
    run_calibration(control_plane.database, claimed, control_plane.settings, control_plane.clock)


def show(viewer: Any, path: str, run_id: str) -> dict[str, Any]:
    return viewer.get(f"{path}/{run_id}").json()


def send_samples(service: Any, fleet: str, telemetry: Any, n: int, **values: Any) -> None:
    events = [telemetry.event(f"r{i}", topic=i % 2, seconds_ago=n - i, **values) for i in range(n)]
    answer = service.post(
        f"/v1/fleets/{fleet}/telemetry", json={"v": 1, "router_id": "router-0", "events": events}
    )
    assert answer.json()["accepted_events"] == n


def test_a_pack_becomes_a_candidate_with_its_report(
    operator: Any, viewer: Any, path: str, fleet: str, control_plane: Any, upload_trace: Any, trace_of: Any
) -> None:
    pack = upload_trace(trace_of())
    run = start(operator, path, trace_pack_id=pack["id"])
    assert (run["state"], run["progress_share"], run["actor"]) == ("queued", 0.0, "test-operator")
    carry_out(control_plane, claim(control_plane))
    done = show(viewer, path, run["id"])
    assert (done["state"], done["progress_share"], done["error"]) == ("succeeded", 1.0, None)
    version = viewer.get(f"/v1/fleets/{fleet}/versions/{done['version_id']}").json()
    assert (version["state"], version["n_centroids"], version["calibration_run_id"]) == (
        "candidate",
        2,
        run["id"],
    )
    # Two topics with no expert in common: 16 requests of one load half of what a mixed batch loads.
    assert version["held_out_percent"] == pytest.approx(-50, abs=1)
    report = viewer.get(f"{path}/{run['id']}/report").json()
    assert report["n_requests"] == 64
    assert report["cluster_sizes"] == [32, 32]
    with control_plane.database.read() as session:
        projection = version_references.find_projection(session, done["version_id"])
        assert version_references.find_drift(session, done["version_id"]) is None
    assert projection is not None
    assert read_projection(projection).occupancy.tolist() == [32, 32]


def test_live_samples_become_a_candidate_with_a_drift_reference(
    operator: Any, viewer: Any, service: Any, path: str, fleet: str, control_plane: Any, telemetry: Any
) -> None:
    send_samples(service, fleet, telemetry, 60)
    run = start(operator, path)
    assert run["n_live_requests"] == 60
    carry_out(control_plane, claim(control_plane))
    done = show(viewer, path, run["id"])
    assert done["error"] is None
    assert done["state"] == "succeeded"
    with control_plane.database.read() as session:
        drift = version_references.find_drift(session, done["version_id"])
    assert drift is not None
    stored = read_drift(drift)
    assert len(stored.reference.traffic) == 60
    assert stored.reference.traffic.occupancy().tolist() == [30, 30]
    # Decode uses the experts that prefill does, and as evenly.
    assert stored.reference.union_ratio == pytest.approx(1.0, abs=1e-6)


def test_requests_without_a_decode_profile_are_left_out_where_enough_have_one(
    service: Any, fleet: str, path: str, control_plane: Any, telemetry: Any
) -> None:
    send_samples(service, fleet, telemetry, 40)
    bare = {"decode_counts": None, "decode_steps": None}
    events = [telemetry.event(f"bare-{i}", topic=i % 2, seconds_ago=0, **bare) for i in range(30)]
    service.post(f"/v1/fleets/{fleet}/telemetry", json={"v": 1, "router_id": "router-0", "events": events})
    with control_plane.database.read() as session:
        judged = sample_trace(session, fleet, LiveTraffic(), 40)
        bare_trace = sample_trace(session, fleet, LiveTraffic(), 41)
        newest = sample_trace(session, fleet, LiveTraffic(limit=20), 10)
    assert (judged.has_decode, len(judged)) == (True, 40)
    assert (bare_trace.has_decode, len(bare_trace)) == (False, 70)
    assert judged.arrival_seconds is not None
    assert (np.diff(judged.arrival_seconds) > 0).all()
    assert (newest.has_decode, len(newest)) == (True, 20)


def test_too_few_samples_are_refused_with_the_numbers(
    operator: Any, service: Any, path: str, fleet: str, telemetry: Any
) -> None:
    send_samples(service, fleet, telemetry, 39)
    refused = operator.post(path, json=WANTED)
    problem = refused.json()
    assert (refused.status_code, problem["field"], problem["value"]) == (422, "n_live_requests", "39")
    assert problem["limit"].startswith("at least 40: 4 for each of 2 clusters")
    many = operator.post(path, json=WANTED | {"n_clusters": 20})
    assert many.json()["limit"].startswith("at least 80")


def test_samples_since_a_time_and_the_newest_so_many(
    operator: Any, service: Any, path: str, fleet: str, telemetry: Any, control_plane: Any
) -> None:
    send_samples(service, fleet, telemetry, 60)
    since = (control_plane.clock.now - timedelta(seconds=45)).isoformat()
    run = start(operator, path, since=since, n_live_requests=42)
    assert run["n_live_requests"] == 42
    later = (control_plane.clock.now - timedelta(seconds=20)).isoformat()
    operator.post(f"{path}/{run['id']}/cancel", json={"reason": "another one"})
    assert operator.post(path, json=WANTED | {"since": later}).json()["value"] == "20"


@pytest.mark.parametrize(
    ("command", "field"),
    [
        ({"n_clusters": 0}, "n_clusters"),
        ({"n_clusters": None}, "n_clusters"),
        ({"transform": "magic"}, "transform"),
        ({"transform": "gate_prob"}, "transform"),
        ({"seed": -1}, "seed"),
        ({"n_live_requests": 5001}, "n_live_requests"),
        ({"since": "2030-01-01T00:00:00Z"}, "since"),
        ({"reason": " "}, "reason"),
    ],
)
def test_what_cannot_be_is_refused(
    operator: Any, service: Any, path: str, fleet: str, telemetry: Any, command: dict[str, Any], field: str
) -> None:
    send_samples(service, fleet, telemetry, 50)
    refused = operator.post(path, json=WANTED | command)
    assert (refused.status_code, refused.json()["field"]) == (422, field)


def test_one_run_a_fleet_at_a_time(operator: Any, path: str, upload_trace: Any, trace_of: Any) -> None:
    pack = upload_trace(trace_of())
    run = start(operator, path, trace_pack_id=pack["id"])
    second = operator.post(path, json=WANTED | {"trace_pack_id": pack["id"]})
    assert second.status_code == 409
    assert run["id"] in second.json()["detail"]


def test_the_same_command_twice_queues_once(
    operator: Any, viewer: Any, path: str, upload_trace: Any, trace_of: Any
) -> None:
    command = WANTED | {"trace_pack_id": upload_trace(trace_of())["id"]}
    headers = {"Idempotency-Key": "k1"}
    first, again = (operator.post(path, json=command, headers=headers) for _ in range(2))
    assert first.json() == again.json()
    assert len(viewer.get(path).json()["items"]) == 1


def test_a_viewer_cannot_start_or_cancel(viewer: Any, path: str) -> None:
    assert viewer.post(path, json=WANTED).status_code == 403
    assert viewer.post(f"{path}/x/cancel", json={"reason": "x"}).status_code == 403


def test_a_queued_run_is_cancelled_at_once(
    operator: Any, path: str, upload_trace: Any, trace_of: Any, control_plane: Any
) -> None:
    run = start(operator, path, trace_pack_id=upload_trace(trace_of())["id"])
    cancelled = operator.post(f"{path}/{run['id']}/cancel", json={"reason": "wrong pack"})
    assert cancelled.json()["state"] == "cancelled"
    with control_plane.change() as change:
        assert claim_run(change) is None
    again = operator.post(f"{path}/{run['id']}/cancel", json={"reason": "wrong pack"})
    assert again.status_code == 409


def test_a_running_run_stops_at_its_next_progress(
    operator: Any, viewer: Any, path: str, upload_trace: Any, trace_of: Any, control_plane: Any, fleet: str
) -> None:
    run = start(operator, path, trace_pack_id=upload_trace(trace_of())["id"])
    claimed = claim(control_plane)
    assert (
        operator.post(f"{path}/{run['id']}/cancel", json={"reason": "not now"}).json()["state"] == "running"
    )
    with pytest.raises(Cancelled):
        Progress(control_plane.database, claimed, control_plane.clock)("layers", 0.5)
    carry_out(control_plane, claimed)
    assert show(viewer, path, run["id"])["state"] == "cancelled"
    assert viewer.get(f"/v1/fleets/{fleet}/versions").json()["items"] == []


def test_progress_is_seen(
    operator: Any, viewer: Any, path: str, upload_trace: Any, trace_of: Any, control_plane: Any
) -> None:
    run = start(operator, path, trace_pack_id=upload_trace(trace_of())["id"])
    progress = Progress(control_plane.database, claim(control_plane), control_plane.clock)
    progress("layers", 0.5)
    seen = show(viewer, path, run["id"])
    assert (seen["state"], seen["stage"]) == ("running", "layers")
    assert seen["progress_share"] == pytest.approx(0.06)


def test_a_process_of_an_older_epoch_writes_nothing(
    operator: Any, viewer: Any, path: str, fleet: str, upload_trace: Any, trace_of: Any, control_plane: Any
) -> None:
    run = start(operator, path, trace_pack_id=upload_trace(trace_of())["id"])
    old = claim(control_plane)
    with control_plane.change("system:calibration") as change:
        release_run(change, old.run_id, old.epoch, "no sign of life")
    new = claim(control_plane)
    assert new.epoch == old.epoch + 1
    with pytest.raises(Superseded):
        carry_out(control_plane, old)
    assert viewer.get(f"/v1/fleets/{fleet}/versions").json()["items"] == []
    carry_out(control_plane, new)
    assert show(viewer, path, run["id"])["state"] == "succeeded"
    with pytest.raises(Superseded):
        carry_out(control_plane, new)
    assert len(viewer.get(f"/v1/fleets/{fleet}/versions").json()["items"]) == 1


def test_a_run_is_put_back_once_and_then_has_failed(
    operator: Any, viewer: Any, path: str, upload_trace: Any, trace_of: Any, control_plane: Any
) -> None:
    run = start(operator, path, trace_pack_id=upload_trace(trace_of())["id"])
    for state in ("queued", "failed"):
        claimed = claim(control_plane)
        with control_plane.change("system:calibration") as change:
            release_run(change, claimed.run_id, claimed.epoch, "its process ended with status -9")
        assert show(viewer, path, run["id"])["state"] == state
    assert show(viewer, path, run["id"])["error"] == "its process ended with status -9; attempt 2 of 2"


def test_a_failure_is_told(
    operator: Any, viewer: Any, path: str, upload_trace: Any, trace_of: Any, control_plane: Any
) -> None:
    pack = upload_trace(trace_of())
    run = start(operator, path, trace_pack_id=pack["id"], transform="gate_prob")
    carry_out(control_plane, claim(control_plane))
    failed = show(viewer, path, run["id"])
    assert failed["state"] == "failed"
    assert "gate_prob" in failed["error"]
    assert viewer.get(f"{path}/{run['id']}/report").status_code == 404


def test_the_same_fit_again_is_the_same_version(
    operator: Any, viewer: Any, path: str, fleet: str, upload_trace: Any, trace_of: Any, control_plane: Any
) -> None:
    pack = upload_trace(trace_of())
    found = []
    for _ in range(2):
        run = start(operator, path, trace_pack_id=pack["id"])
        carry_out(control_plane, claim(control_plane))
        found.append(show(viewer, path, run["id"])["version_id"])
    assert found[0] == found[1]
    assert len(viewer.get(f"/v1/fleets/{fleet}/versions").json()["items"]) == 1


def test_a_new_version_is_judged_against_the_active_one(
    operator: Any, viewer: Any, path: str, fleet: str, upload_trace: Any, trace_of: Any, control_plane: Any
) -> None:
    versions_path = f"/v1/fleets/{fleet}/versions"
    for seed in (1, 2):
        run = start(operator, path, trace_pack_id=upload_trace(trace_of(seed=seed), f"pack-{seed}")["id"])
        carry_out(control_plane, claim(control_plane))
        version_id = show(viewer, path, run["id"])["version_id"]
        preview = operator.post(f"{versions_path}/{version_id}/promote?dry_run=true", json={"reason": "see"})
        assert preview.json()["is_allowed"], preview.text
        promoted = operator.post(f"{versions_path}/{version_id}/promote", json={"reason": "it passed"})
        assert promoted.status_code == 200, promoted.text
    checks = {check["name"]: check["detail"] for check in preview.json()["checks"]}
    assert "trace pack 'pack-2', each half by a fit on the other" in checks["held-out union"]


def test_everything_is_audited(
    operator: Any, admin: Any, path: str, fleet: str, upload_trace: Any, trace_of: Any, control_plane: Any
) -> None:
    run = start(operator, path, trace_pack_id=upload_trace(trace_of())["id"])
    carry_out(control_plane, claim(control_plane))
    events = admin.get("/v1/audit", params={"fleet": fleet}).json()["items"]
    ours = [(event["action"], event["actor"]) for event in events if event["resource_id"] == run["id"]]
    assert ours == [
        ("succeed", "test-operator"),
        ("claim", "system:calibration"),
        ("start", "test-operator"),
    ]
