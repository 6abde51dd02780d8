from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from eldr_runtime.cli.main import run
from eldr_runtime.cli.traces import summarise, trace_sections
from eldr_runtime.expert_trace import ExpertTrace
from eldr_runtime.model_shape import ModelShape
from eldr_runtime.trace_files import load_trace

RunJson = Callable[..., dict[str, object]]


@pytest.fixture
def trace() -> ExpertTrace:
    counts = np.array([[[2, 0]], [[1, 3]], [[4, 4]]], dtype=np.uint32)
    covered = np.array([2, 4, 8], dtype=np.int64)
    return ExpertTrace(
        shape=ModelShape(model="toy", n_layers=1, n_experts=2, top_k=1),
        prefill_counts=counts,
        prompt_tokens=np.array([2, 6, 8], dtype=np.int64),
        covered_tokens=covered,
        labels=("law", "math", "law"),
        source="by hand",
        licence="CC0-1.0",
        signature_note="worked out by hand",
    )


def test_summary_of_a_trace_without_a_decode_phase(trace: ExpertTrace) -> None:
    summary = summarise(trace)
    assert (summary.n_requests, summary.prompt_tokens, summary.prompt_tokens_median) == (3, 16, 6.0)
    assert summary.covered_share == 14 / 16
    assert summary.decode_steps is None
    assert summary.labels == (("law", 2), ("math", 1))
    assert dict(summary.facts())["decode"] == "none"
    assert summary.to_json()["labels"] == {"law": 2, "math": 1}


def test_summary_of_the_decode_phase(trace: ExpertTrace) -> None:
    steps = np.array([1, 2, 6], dtype=np.int64)
    decode_counts = np.array([[[1, 0]], [[0, 2]], [[3, 3]]], dtype=np.uint32)
    summary = summarise(replace(trace, decode_counts=decode_counts, decode_steps=steps, labels=None))
    assert (summary.decode_steps, summary.decode_steps_median) == (9, 2.0)
    assert dict(summary.facts())["categories"] == "none"


def test_the_rarest_categories_are_counted_together(trace: ExpertTrace) -> None:
    many = trace.select(np.zeros(40, dtype=np.int64))
    labels = ("common",) * 20 + tuple(f"rare {n}" for n in range(20))
    table = trace_sections(replace(many, labels=labels))[2].table
    assert table is not None
    assert table.rows[0] == ("common", "20")
    assert table.rows[-1] == ("6 others", "6")
    assert sum(int(n) for _, n in table.rows) == 40


def test_relative_use_is_against_an_even_share(trace: ExpertTrace) -> None:
    drawn = trace_sections(trace)[1].figure
    assert drawn is not None
    # 7 and 7 of 14 tokens: both experts at an even share, which is 1
    np.testing.assert_allclose(drawn.data[0].customdata, [[1.0], [1.0]])


def test_generated_pack_is_what_was_asked_for(pack: Path, run_json: RunJson) -> None:
    document = run_json("traces", "describe", pack)
    assert document["n_requests"] == 96
    assert (document["n_layers"], document["n_experts"], document["top_k"]) == (3, 16, 2)
    assert document["covered_share"] == 1.0
    labels = document["labels"]
    assert isinstance(labels, dict)
    assert sum(labels.values()) == 96


def test_equal_seeds_generate_equal_packs(pack: Path, tmp_path: Path) -> None:
    again, other = tmp_path / "again.safetensors", tmp_path / "other.safetensors"
    shape = ["--requests", "96", "--layers", "3", "--experts", "16", "--top-k", "2"]
    assert run(["traces", "generate", "--workload", "balanced", *shape, "--output", str(again)]) == 0
    assert (
        run(["traces", "generate", "--workload", "balanced", *shape, "--seed", "2", "--output", str(other)])
        == 0
    )
    assert again.read_bytes() == pack.read_bytes()
    assert other.read_bytes() != pack.read_bytes()


def test_import_writes_a_pack_that_loads(
    pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_json: RunJson
) -> None:
    folder, output = tmp_path / "raw", tmp_path / "new" / "pack.safetensors"
    folder.mkdir()
    np.savez(
        folder / "prefill_counts.npz",
        counts=np.full((2, 48, 128), 8, dtype=np.int32),
        total_tokens=np.full(2, 128, dtype=np.int64),
        langs=np.array(["en", "de"]),
    )
    document = run_json("traces", "import", folder, "--output", output)
    assert document["n_requests"] == 2
    assert load_trace(output).labels == ("en", "de")


def test_folder_of_no_known_layout_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["traces", "describe", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("eldr: ")


def test_file_that_is_no_pack_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "pack.safetensors"
    path.write_bytes(b"no pack")
    assert run(["traces", "describe", str(path)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1


def test_description_for_people_names_the_categories_and_the_note(
    pack: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report.html"
    assert run(["traces", "describe", str(pack), "--report", str(report)]) == 0
    printed = capsys.readouterr()
    assert "topic-00" in printed.out
    assert "note: synthetic requests" in printed.err
    assert "How evenly the experts are used" in report.read_text()
