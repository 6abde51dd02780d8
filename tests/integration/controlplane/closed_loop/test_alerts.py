"""Alerts over HTTP: they fire, are looked after, resolved, and survive a restart without firing again."""

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest

from controlplane.domain.alert_rules import Reading, RuleName
from controlplane.jobs.calibration_processes import CalibrationProcesses
from controlplane.jobs.lease import FencedDatabase, take_lease
from controlplane.jobs.ticks import Tick, tell_of_alerts
from controlplane.services.raise_alerts import apply_readings

RULE = RuleName.SIGNATURE_MISSING


@pytest.fixture
def path(fleet: str) -> str:
    return f"/v1/fleets/{fleet}/alerts"


def evaluate(
    control_plane: Any, fleet: str, *values: float | None, subject: str = "fleet", rule: RuleName = RULE
) -> None:
    for value in values:
        reading = Reading(
            rule=rule,
            subject=subject,
            value=value,
            n=500,
            fire_threshold=0.05,
            clear_threshold=0.02,
            summary="test",
        )
        with control_plane.change("system:alerts") as change:
            apply_readings(change, fleet, [rule], [reading])
        control_plane.clock.advance(5)


def listed(viewer: Any, path: str, **query: str) -> list[tuple[str, str]]:
    return [(item["subject"], item["state"]) for item in viewer.get(path, params=query).json()["items"]]


def test_an_alert_fires_is_resolved_and_may_fire_again(
    viewer: Any, path: str, fleet: str, control_plane: Any
) -> None:
    evaluate(control_plane, fleet, 0.1, 0.1)
    assert listed(viewer, path) == [("fleet", "pending")]
    evaluate(control_plane, fleet, 0.1)
    (alert,) = viewer.get(path).json()["items"]
    assert (alert["state"], alert["severity"], alert["runbook"]) == (
        "firing",
        "warning",
        "docs/runbooks/signature_missing.md",
    )
    assert (alert["value"], alert["threshold"], alert["n"]) == (0.1, 0.05, 500)
    evaluate(control_plane, fleet, 0.1, 0.01, 0.01, 0.01)
    (resolved,) = viewer.get(path).json()["items"]
    assert (resolved["id"], resolved["state"]) == (alert["id"], "resolved")
    assert resolved["resolved_at"] is not None
    evaluate(control_plane, fleet, 0.1, 0.1, 0.1)
    assert listed(viewer, path) == [("fleet", "firing"), ("fleet", "resolved")]
    assert listed(viewer, path, state="firing") == [("fleet", "firing")]
    evaluate(control_plane, fleet, 0.0, 0.0, 0.0)
    assert listed(viewer, path) == [("fleet", "resolved"), ("fleet", "resolved")]


def test_subjects_have_alerts_of_their_own(viewer: Any, path: str, fleet: str, control_plane: Any) -> None:
    readings = [
        Reading(
            rule=RuleName.WORKER_LOST,
            subject=worker,
            value=value,
            fire_threshold=0.5,
            clear_threshold=0.5,
            summary=worker,
        )
        for worker, value in (("decode-0", 1.0), ("decode-1", 0.0), ("decode-2", 1.0))
    ]
    for _ in range(2):
        with control_plane.change("system:alerts") as change:
            apply_readings(change, fleet, [RuleName.WORKER_LOST], readings)
    assert sorted(listed(viewer, path)) == [("decode-0", "firing"), ("decode-2", "firing")]
    with control_plane.change("system:alerts") as change:  # decode-0 was removed by an operator
        apply_readings(change, fleet, [RuleName.WORKER_LOST], readings[1:])
    assert sorted(listed(viewer, path)) == [("decode-0", "resolved"), ("decode-2", "firing")]


def test_another_rule_s_evaluation_leaves_it_alone(
    viewer: Any, path: str, fleet: str, control_plane: Any
) -> None:
    evaluate(control_plane, fleet, 0.1, 0.1, 0.1)
    for _ in range(30):
        evaluate(control_plane, fleet, 0.0, rule=RuleName.LOAD_IMBALANCE)
    assert listed(viewer, path) == [("fleet", "firing")]


def test_no_data_is_its_own_state(viewer: Any, path: str, fleet: str, control_plane: Any) -> None:
    evaluate(control_plane, fleet, 0.1, 0.1, 0.1, *[None] * 13)
    (alert,) = viewer.get(path).json()["items"]
    assert (alert["state"], alert["value"]) == ("no_data", 0.1)
    assert viewer.get(f"/v1/fleets/{fleet}/status").json()["n_open_alerts"] == 1


def test_somebody_looks_after_it(
    operator: Any, viewer: Any, path: str, fleet: str, control_plane: Any
) -> None:
    evaluate(control_plane, fleet, 0.1, 0.1, 0.1)
    (alert,) = viewer.get(path).json()["items"]
    one = f"{path}/{alert['id']}"
    assert viewer.post(f"{one}/acknowledge", json={"reason": "mine"}).status_code == 403
    acknowledged = operator.post(f"{one}/acknowledge", json={"reason": "mine"}).json()
    assert (acknowledged["acknowledged_by"], acknowledged["state"]) == ("test-operator", "firing")
    silenced = operator.post(f"{one}/silence", json={"reason": "known", "seconds": 3600}).json()
    assert silenced["silenced_by"] == "test-operator"
    for seconds in (0, -1, 1e9):
        refused = operator.post(f"{one}/silence", json={"reason": "known", "seconds": seconds})
        assert (refused.status_code, refused.json()["field"]) == (422, "seconds")
    evaluate(control_plane, fleet, 0.1)
    (still,) = viewer.get(path).json()["items"]
    assert still["acknowledged_by"] == "test-operator"
    evaluate(control_plane, fleet, 0.0, 0.0, 0.0)
    assert operator.post(f"{one}/acknowledge", json={"reason": "late"}).status_code == 409
    assert operator.post(f"{path}/nothing/acknowledge", json={"reason": "x"}).status_code == 404


class Hook(BaseHTTPRequestHandler):
    """A webhook that keeps what it is told."""

    told: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        self.told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Keep quiet."""


@pytest.fixture
def hook() -> Iterator[str]:
    Hook.told.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Hook) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/hook"
        server.shutdown()
        thread.join()


def test_webhooks_are_told_once_and_not_of_silenced_alerts(
    operator: Any, viewer: Any, path: str, fleet: str, control_plane: Any, hook: str
) -> None:
    control_plane.use_settings(replace(control_plane.settings, notify_urls=hook))
    lease = take_lease(control_plane.database, "test", seconds=600)
    assert lease is not None

    def tell() -> list[str]:
        Hook.told.clear()
        tick = Tick(
            fenced=FencedDatabase(database=control_plane.database, lease=lease),
            settings=control_plane.settings,
            processes=CalibrationProcesses(start=lambda run_id, epoch: pytest.fail("no run is queued")),
            now=control_plane.clock.now,
        )
        tell_of_alerts(tick)
        return [told["alert"]["subject"] for told in Hook.told]

    evaluate(control_plane, fleet, 0.1, 0.1, 0.1, subject="loud")
    evaluate(control_plane, fleet, 0.1, 0.1, 0.1, subject="quiet", rule=RuleName.MIX_SHIFT)
    (quiet,) = [item for item in viewer.get(path).json()["items"] if item["subject"] == "quiet"]
    operator.post(f"{path}/{quiet['id']}/silence", json={"reason": "known", "seconds": 60})
    assert tell() == ["loud"]
    assert tell() == []
    control_plane.clock.advance(61)
    assert tell() == ["quiet"]


def test_every_change_of_state_is_audited(admin: Any, fleet: str, control_plane: Any) -> None:
    evaluate(control_plane, fleet, 0.1, 0.1, 0.1, 0.1, 0.0, 0.0, 0.0)
    events = admin.get("/v1/audit", params={"fleet": fleet}).json()["items"]
    ours = [(event["action"], event["actor"]) for event in events if event["resource"] == "alert"]
    assert ours == [("resolve", "system:alerts"), ("fire", "system:alerts")]
