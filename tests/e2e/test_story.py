"""The whole closed loop as `eldr up --demo --auto` plays it: real processes, real time.

In short: what it tells and that nothing fails, on any machine. In full, `make e2e`: the figures the demo is
stated for, which need two cores that do nothing else.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

UP = (
    *(sys.executable, "-m", "controlplane.cli.main", "up", "--demo", "--auto", "--json"),
    *("--router-port", "0", "--controlplane-port", "0", "--dashboard-port", "0"),
)
TIMEOUT_SECONDS = 1200
# Enough requests for every step, and a third of the full story's work: tests run beside it.
LIGHT = ("--rate", "30", "--output-tokens", "48")
CHANGES = ("tpot_p50_change_percent", "tpot_p99_change_percent", "active_experts_change_percent")


def play(data_dir: Path, *options: str) -> dict[str, Any]:
    """Play the story and return its one JSON document."""
    ended = subprocess.run(
        [*UP, "--data", str(data_dir), *options],
        stdout=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    sys.stdout.write(ended.stdout)
    assert ended.returncode == 0
    result = json.loads(ended.stdout)
    assert isinstance(result, dict)
    return result


def check_loop(result: dict[str, Any]) -> None:
    """The loop was closed: nothing failed, and every change says who made it and why."""
    assert result["requests"] > 1000
    assert result["failed_requests"] == 0
    assert result["promotions"] == 3
    assert result["rollbacks"] == 1
    assert result["refits"] >= 1
    assert result["audit_events"] > 10
    assert result["audit_events_without_actor_or_reason"] == 0


def test_the_story_in_short(tmp_path: Path) -> None:
    result = play(tmp_path / "data", "--no-dashboard", "--pairs", "2", *LIGHT)
    check_loop(result)
    assert set(result) == {
        *CHANGES,
        "requests",
        "failed_requests",
        "n_pairs",
        "verdict",
        "false_alerts",
        "drift_alert_delay_seconds",
        "refits",
        "promotions",
        "rollbacks",
        "tau_live_seconds",
        "audit_events",
        "audit_events_without_actor_or_reason",
    }
    assert (result["n_pairs"], result["verdict"]) == (2, "inconclusive")
    for name in CHANGES:
        assert set(result[name]) == {"mean", "interval"}
    assert result["drift_alert_delay_seconds"] > 0
    assert result["tau_live_seconds"] > 0


@pytest.mark.full_story
def test_the_story_in_full(tmp_path: Path) -> None:
    result = play(tmp_path / "data", "--pairs", "8")
    check_loop(result)
    p50, p99 = result["tpot_p50_change_percent"], result["tpot_p99_change_percent"]
    assert result["n_pairs"] == 8
    assert p50["mean"] <= -8
    assert p50["interval"][1] < 0
    assert p99["interval"][1] < 5
    assert result["drift_alert_delay_seconds"] <= 60
    assert result["false_alerts"] == 0
    assert result["tau_live_seconds"] <= 2
