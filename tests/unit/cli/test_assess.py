from collections.abc import Callable
from pathlib import Path

import pytest

from eldr_runtime.cli.main import run

RunJson = Callable[..., dict[str, object]]


@pytest.fixture(scope="module")
def uniform_pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("packs") / "uniform.safetensors"
    shape = ["--requests", "128", "--layers", "2", "--experts", "128", "--top-k", "2"]
    assert run(["traces", "generate", "--workload", "uniform", *shape, "--output", str(path)]) == 0
    return path


def test_traffic_with_topics_is_worth_it(pack: Path, run_json: RunJson) -> None:
    document = run_json("assess", pack, "--workers", "2")
    assert document["verdict"] == "worth_it"
    assert document["decided_at_batch_size"] == 16
    assert document["sentences"][0].startswith("Worth it")
    assert [one["batch_size"] for one in document["gain"]][:2] == [8, 16]
    assert document["predicted_tpot"] == []


def test_traffic_without_topics_has_nothing_to_gain(uniform_pack: Path, run_json: RunJson) -> None:
    assert run_json("assess", uniform_pack, "--workers", "2")["verdict"] != "worth_it"


def test_for_people_and_as_a_report(pack: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "report.html"
    assert run(["assess", str(pack), "--workers", "3", "--report", str(report)]) == 0
    printed = capsys.readouterr()
    assert "Verdict: worth it" in printed.out
    assert "best grouping found" in printed.out
    assert "By cluster, batch 8" in printed.out
    assert "note: synthetic requests" in printed.err
    assert "Gain by batch size" in report.read_text()


def test_preset_of_another_shape_is_refused(pack: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["assess", str(pack), "--preset", "qwen3-30b-a3b-mi300x"]) == 2
    assert "qwen3-30b-a3b-mi300x" in capsys.readouterr().err


def test_unknown_preset_is_bad_usage(pack: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["assess", str(pack), "--preset", "abacus"]) == 2
    assert "abacus" in capsys.readouterr().err
