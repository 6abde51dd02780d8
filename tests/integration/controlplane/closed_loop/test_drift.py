"""Drift end to end: live traffic against the active version, an alert, a refit, and all quiet again."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from controlplane.services.calibrate import claim_run
from controlplane.services.measure_traffic import measure_traffic
from controlplane.services.roll_up_metrics import roll_up_metrics
from controlplane.services.run_calibration import ClaimedRun, run_calibration
from controlplane.services.watch_drift import keep_check
from eldr_runtime.count_codec import ExpertCounts, encode_counts
from eldr_runtime.model_shape import ModelShape


@pytest.fixture
def fleet_path(fleet: str, control_plane: Any) -> str:
    control_plane.use_settings(
        replace(
            control_plane.settings,
            calibration_minimum_samples=40,
            calibration_splits=2,
            refit_minimum_samples=50,
            refit_cooldown_seconds=60.0,
            drift_minimum_samples=50,
            drift_window_seconds=60.0,
            drift_check_seconds=60.0,
        )
    )
    return f"/v1/fleets/{fleet}"


def unseen_counts() -> dict[str, Any]:
    """Counts of a request that uses all experts alike: half of them are no one topic's."""
    shape = ModelShape(model="toy/moe", n_layers=3, n_experts=8, top_k=2)
    counts = np.full(shape.counts_shape, 2, dtype=np.uint32)
    return encode_counts(ExpertCounts(shape=shape, counts=counts, tokens=8, covered=8))


class Traffic:
    """Sends samples of two topics, or of a third that no version has seen."""

    def __init__(self, service: Any, path: str, telemetry: Any) -> None:
        self.service, self.path, self.telemetry = service, path, telemetry
        self.n_sent = 0

    def send(self, n: int, *, version: str | None, is_unseen: bool = False) -> None:
        values = {"counts": unseen_counts()} if is_unseen else {}
        events = [
            self.telemetry.event(
                f"r{self.n_sent + i}", topic=i % 2, seconds_ago=(n - i) * 0.5, version=version, **values
            )
            for i in range(n)
        ]
        self.n_sent += n
        answer = self.service.post(
            f"{self.path}/telemetry", json={"v": 1, "router_id": "router-0", "events": events}
        )
        assert answer.json()["accepted_events"] == n, answer.text


@pytest.fixture
def traffic(service: Any, fleet_path: str, telemetry: Any) -> Traffic:
    return Traffic(service, fleet_path, telemetry)


def carry_out(control_plane: Any) -> None:
    with control_plane.change("system:calibration") as change:
        found = claim_run(change)
    assert found is not None
    claimed = ClaimedRun(run_id=found[0], epoch=found[1])
    run_calibration(control_plane.database, claimed, control_plane.settings, control_plane.clock)


def promote(operator: Any, path: str, version_id: str) -> str:
    promoted = operator.post(
        f"{path}/versions/{version_id}/promote", json={"reason": "go", "is_override": True}
    )
    assert promoted.status_code == 200, promoted.text
    return str(operator.get(f"{path}/versions/{version_id}").json()["content_hash"])


def check(control_plane: Any, fleet: str) -> Any:
    """Check as the clock does."""
    with control_plane.database.read() as session:
        measured = measure_traffic(session, fleet, control_plane.settings, control_plane.clock.now)
    with control_plane.change("system:drift") as change:
        return keep_check(change, fleet, measured, control_plane.settings)


def fit_of(found: Any) -> Any:
    return next(measure for measure in found.measures if measure.name == "fit_degradation")


@pytest.fixture
def active_hash(operator: Any, control_plane: Any, fleet_path: str, traffic: Traffic) -> str:
    """Content hash of an active version that was calibrated from live traffic."""
    traffic.send(60, version=None)
    started = operator.post(f"{fleet_path}/calibration-runs", json={"reason": "first", "n_clusters": 2})
    assert started.status_code == 202, started.text
    carry_out(control_plane)
    run = operator.get(f"{fleet_path}/calibration-runs/{started.json()['id']}").json()
    assert run["error"] is None
    content_hash = promote(operator, fleet_path, run["version_id"])
    control_plane.clock.advance(60)
    return content_hash


def test_the_same_traffic_is_no_drift(
    operator: Any,
    viewer: Any,
    fleet: str,
    fleet_path: str,
    control_plane: Any,
    traffic: Traffic,
    active_hash: str,
) -> None:
    for _ in range(3):
        traffic.send(60, version=active_hash)
        answer = operator.post(f"{fleet_path}/drift/check")
        assert answer.status_code == 201, answer.text
        assert answer.json()["refit_decision"].startswith("no_drift")
        control_plane.clock.advance(60)
    items = viewer.get(f"{fleet_path}/drift").json()["items"]
    assert len(items) == 3
    measures = {measure["name"]: measure for measure in items[0]["measures"]}
    assert measures["fit_degradation"]["verdict"] == "ok"
    assert measures["fit_degradation"]["n"] == 60
    assert measures["mix_shift"]["verdict"] == "insufficient_data"
    assert (items[0]["occupancy"], items[0]["reference_occupancy"]) == ([30, 30], [30, 30])
    assert viewer.get(f"{fleet_path}/alerts").json()["items"] == []


def test_an_unseen_topic_fires_an_alert_and_starts_one_refit_whose_version_ends_it(
    operator: Any,
    viewer: Any,
    fleet: str,
    fleet_path: str,
    control_plane: Any,
    traffic: Traffic,
    active_hash: str,
) -> None:
    traffic.send(30, version=active_hash)
    traffic.send(60, version=active_hash, is_unseen=True)
    first = check(control_plane, fleet)
    assert (fit_of(first).verdict, fit_of(first).n) == ("drift", 90)
    assert "1 check in drift, 2 in a row needed" in first.refit_decision
    assert [alert["state"] for alert in viewer.get(f"{fleet_path}/alerts").json()["items"]] == ["pending"]
    control_plane.clock.advance(30)
    traffic.send(50, version=active_hash, is_unseen=True)
    second = check(control_plane, fleet)
    assert second.refit_decision.startswith("fit_degraded: run ")
    (alert,) = viewer.get(f"{fleet_path}/alerts").json()["items"]
    assert (alert["rule"], alert["state"]) == ("fit_degradation", "firing")
    third = check(control_plane, fleet)
    assert third.refit_decision.startswith("already_running")
    (run, _) = viewer.get(f"{fleet_path}/calibration-runs").json()["items"]
    assert (run["origin"], run["actor"], run["state"]) == ("drift_refit", "system:drift", "queued")
    carry_out(control_plane)
    done = viewer.get(f"{fleet_path}/calibration-runs/{run['id']}").json()
    assert done["error"] is None
    version = viewer.get(f"{fleet_path}/versions/{done['version_id']}").json()
    assert (version["state"], version["parent_hash"], version["origin"]) == (
        "candidate",
        active_hash,
        "drift_refit",
    )
    assert check(control_plane, fleet).refit_decision.startswith("cooling_down")
    new_hash = promote(operator, fleet_path, version["id"])
    control_plane.clock.advance(60)
    for _ in range(3):
        traffic.send(10, version=new_hash)
        traffic.send(50, version=new_hash, is_unseen=True)
        assert fit_of(check(control_plane, fleet)).verdict == "ok"
        control_plane.clock.advance(60)
    (alert,) = viewer.get(f"{fleet_path}/alerts").json()["items"]
    assert alert["state"] == "resolved"


def test_without_an_active_version_there_is_nothing_to_drift_from(operator: Any, fleet_path: str) -> None:
    refused = operator.post(f"{fleet_path}/drift/check")
    assert refused.status_code == 409
    assert "no active version" in refused.json()["detail"]


def test_too_little_traffic_is_insufficient_data(
    operator: Any, viewer: Any, fleet_path: str, traffic: Traffic, active_hash: str
) -> None:
    traffic.send(49, version=active_hash, is_unseen=True)
    found = operator.post(f"{fleet_path}/drift/check").json()
    assert {measure["verdict"] for measure in found["measures"]} == {"insufficient_data"}
    assert found["refit_decision"].startswith("insufficient_data")
    assert viewer.get(f"{fleet_path}/alerts").json()["items"] == []


def test_an_uploaded_version_is_compared_with_its_first_live_traffic(
    operator: Any, fleet: str, fleet_path: str, control_plane: Any, traffic: Traffic, upload_version: Any,
    version_of: Any, telemetry: Any, service: Any,
) -> None:  # fmt: skip
    control_plane.use_settings(replace(control_plane.settings, drift_reference_samples=60))
    version = upload_version(version_of())
    content_hash = promote(operator, fleet_path, version["id"])
    control_plane.clock.advance(60)
    traffic.send(60, version=content_hash)
    assert fit_of(check(control_plane, fleet)).verdict == "insufficient_data"
    blobs = [telemetry.blob(seconds_ago=10, version=content_hash)]
    service.post(f"{fleet_path}/telemetry", json={"v": 1, "router_id": "router-0", "blobs": blobs})
    roll_up(control_plane, fleet)
    assert fit_of(check(control_plane, fleet)).verdict == "ok"
    control_plane.clock.advance(60)
    traffic.send(60, version=content_hash, is_unseen=True)
    assert fit_of(check(control_plane, fleet)).verdict == "drift"


def test_steps_that_load_more_experts_than_the_prompts_let_expect_are_a_surprise(
    fleet: str,
    fleet_path: str,
    control_plane: Any,
    traffic: Traffic,
    active_hash: str,
    telemetry: Any,
    service: Any,
) -> None:
    traffic.send(60, version=active_hash)
    # A request uses the four experts of its topic half the time. With both topics on this worker, an expert
    # is used a quarter of the time, and a batch of 4 loads 8 * (1 - (3/4) ** 4) = 5.47 of them.
    for experts, verdict in ((5.47, "ok"), (6.5, "drift")):
        row = telemetry.row(
            version=active_hash,
            active_experts={"n_steps": 2000, "sum_by_layer": [2000 * experts] * 3, "batch_sum": 8000.0},
        )
        control_plane.clock.advance(10)
        traffic.send(20, version=active_hash)
        blob = telemetry.blob(seconds_ago=10, rows=[row])
        service.post(f"{fleet_path}/telemetry", json={"v": 1, "router_id": "router-0", "blobs": [blob]})
        roll_up(control_plane, fleet)
        found = check(control_plane, fleet)
        union = next(measure for measure in found.measures if measure.name == "union_surprise")
        assert (union.verdict, union.threshold) == (verdict, pytest.approx(1.1))
        control_plane.clock.advance(60)


def roll_up(control_plane: Any, fleet: str) -> None:
    with control_plane.change("system") as change:
        roll_up_metrics(change, fleet)
