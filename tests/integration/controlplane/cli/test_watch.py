"""`eldr alerts`, `eldr drift` and `eldr experiments`."""

from typing import Any

import pytest

from controlplane.domain.alert_rules import Reading, RuleName
from controlplane.domain.telemetry import DriftCheck, DriftMeasure
from controlplane.services.raise_alerts import apply_readings
from controlplane.storage.models.metadata import new_id
from controlplane.storage.repositories import drift_checks

EVER = ("--hours", 80_000)


@pytest.fixture
def alert_id(control_plane: Any, fleet: str, viewer: Any) -> str:
    """Id of an alert that fires on decode-0, of a worker that is lost."""
    rule = RuleName.WORKER_LOST
    reading = Reading(
        rule=rule, subject="decode-0", value=1.0, fire_threshold=0.5, clear_threshold=0.5, summary="lost"
    )
    for _ in range(2):
        with control_plane.change("system:alerts") as change:
            apply_readings(change, fleet, [rule], [reading])
    (alert,) = viewer.get(f"/v1/fleets/{fleet}/alerts").json()["items"]
    return str(alert["id"])


@pytest.fixture
def active_version(upload_version: Any, version_of: Any, eldr: Any) -> dict[str, Any]:
    version = upload_version(version_of())
    assert eldr("versions", "promote", 1, "--reason", "the first").status == 0
    return version


def test_alerts_are_listed_acknowledged_and_silenced(eldr: Any, alert_id: str) -> None:
    table = eldr("alerts", "list", "--state", "firing").out
    for part in ("worker_lost", "decode-0", "nobody"):
        assert part in table
    assert eldr("alerts", "list", "--state", "resolved", "--json").document == []
    ended = eldr("alerts", "acknowledge", alert_id, "--reason", "on it")
    assert (ended.out, ended.err) == ("worker_lost is acknowledged by test-operator\n", "")
    silenced = eldr("alerts", "silence", alert_id, "--seconds", 600, "--reason", "known")
    assert silenced.out.startswith("worker_lost is silenced until ")
    (alert,) = eldr("alerts", "list", "--json").document
    assert (alert["acknowledged_by"], alert["silenced_by"]) == ("test-operator", "test-operator")


def test_an_alert_nobody_knows(eldr: Any) -> None:
    ended = eldr("alerts", "acknowledge", "nothing", "--reason", "on it")
    assert (ended.status, ended.out) == (2, "")
    assert "nothing" in ended.err
    assert len(ended.err.splitlines()) == 1


def test_drift_reports_are_listed_measure_by_measure(
    eldr: Any, control_plane: Any, fleet: str, active_version: Any
) -> None:
    check = DriftCheck(
        id=new_id(),
        at=control_plane.clock.now,
        version_id=active_version["id"],
        version_number=1,
        window_seconds=60.0,
        measures=(
            DriftMeasure(name="fit_degradation", verdict="drift", n=2400, value=0.61, threshold=0.72),
            DriftMeasure(
                name="mix_shift", verdict="insufficient_data", n=12, value=None, threshold=None
            ),
        ),
        refit_decision="cooldown",
        occupancy=(1, 2),
        reference_occupancy=(2, 1),
    )  # fmt: skip
    with control_plane.change("system:drift") as change:
        drift_checks.add_check(change.session, fleet, check)
    table = eldr("drift", "list", *EVER).out
    for part in ("fit_degradation", "2,400", "0.61", "0.72", "insufficient_data"):
        assert part in table
    assert eldr("drift", "list", *EVER, "--json").document[0]["refit_decision"] == "cooldown"
    assert eldr("drift", "list", "--hours", 1, "--json").document == []


def test_an_experiment_is_started_listed_and_stopped(eldr: Any, active_version: Any) -> None:
    started = eldr(
        "experiments", "start", "--reason", "does it help?", "--pairs", 6, "--window", 60, "--washout", 20
    )
    assert started.out == "runs from 12:02:00 to 12:14:00 UTC\n"
    second = eldr("experiments", "start", "--reason", "again")
    assert second.status == 2
    assert "stop it first" in second.err
    (experiment,) = eldr("experiments", "list", "--json").document
    assert (experiment["state"], experiment["n_pairs"]) == ("running", 6)
    assert "inconclusive" in eldr("experiments", "list").out
    stopped = eldr("experiments", "stop", experiment["id"], "--reason", "enough seen")
    assert stopped.out == "stopped after 0 of 6 pairs\n"
    assert eldr("experiments", "list", "--json").document[0]["state"] == "stopped"


def test_an_experiment_needs_a_version(eldr: Any) -> None:
    ended = eldr("experiments", "start", "--reason", "does it help?")
    assert (ended.status, ended.out) == (2, "")
    assert "promote one first" in ended.err
