from collections.abc import Callable
from pathlib import Path

import pytest

from eldr_runtime.centroid_version import load_version
from eldr_runtime.cli.main import run

RunJson = Callable[..., dict[str, object]]
QUICK = ["--workers", "3", "--splits", "2"]


def test_json_carries_what_a_version_is_judged_by(pack: Path, run_json: RunJson) -> None:
    document = run_json("calibrate", pack, *QUICK)
    assert document["cluster_sizes"] == [32, 32, 32]
    held_out = document["held_out"]
    assert isinstance(held_out, dict)
    at_8 = held_out["batch_8"]
    assert {"mean_percent", "seeds", "interval", "covered_share"} <= set(at_8)
    assert len(at_8["seeds"]) == 2
    assert held_out["batch_64"] is None
    control = document["control"]
    assert isinstance(control, dict)
    assert "random_labels_percent" in control
    low, high = document["rho_interval"]
    assert low <= document["rho"] <= high
    assert 1 <= document["n_layers_kept"] <= 3
    assert document["output"] is None


def test_nothing_is_written_unless_asked_for(
    pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["calibrate", str(pack), *QUICK]) == 0
    assert list(tmp_path.iterdir()) == []
    printed = capsys.readouterr()
    assert "nothing written" in printed.err
    assert "note: synthetic requests" in printed.err
    assert "no cluster is that large" in printed.out


def test_version_and_report_are_written_where_asked(pack: Path, tmp_path: Path, run_json: RunJson) -> None:
    output, report = tmp_path / "new" / "version.safetensors", tmp_path / "report.html"
    document = run_json(
        "calibrate",
        pack,
        *QUICK,
        "--no-layers",
        "--transform",
        "count",
        "--output",
        output,
        "--report",
        report,
    )
    version = load_version(output)
    assert version.content_hash == document["content_hash"]
    assert version.transform.name == "count"
    assert version.transform.layer_mask.all()
    html = report.read_text()
    assert "Signatures" in html
    assert "Layers kept" not in html


def test_more_workers_than_requests_are_refused(
    pack: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "version.safetensors"
    assert run(["calibrate", str(pack), "--workers", "97", "--output", str(output)]) == 2
    assert capsys.readouterr().err == "eldr: n_requests is 96; must be at least the 97 clusters\n"
    assert not output.exists()


def test_a_transform_that_the_trace_has_no_values_for_is_refused(
    pack: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["calibrate", str(pack), "--transform", "gate_prob"]) == 2
    assert "gate_prob" in capsys.readouterr().err
