"""The trace that ships: recorded from real vLLM workers, and what commands take where no trace is given."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from controlplane.cli.main import run
from eldr_runtime.calibration import CalibrationSettings, calibrate
from eldr_runtime.cli.shipped import PROMPTS, RECORDED_TRACE, open_given_trace
from eldr_runtime.errors import UnreadableFile
from eldr_runtime.expert_trace import ExpertTrace
from eldr_runtime.prompt_file import read_prompts

N_GROUPS = 11


@pytest.fixture(scope="module")
def trace() -> ExpertTrace:
    return open_given_trace(None)


def test_it_holds_prefill_and_decode_of_every_prompt(trace: ExpertTrace) -> None:
    prompts = read_prompts(PROMPTS, required=("group",)).prompts
    assert (trace.shape.n_layers, trace.shape.n_experts, trace.shape.top_k) == (6, 64, 4)
    assert trace.labels == tuple(prompt.fields["group"] for prompt in prompts)
    assert len(Counter(trace.labels)) == N_GROUPS
    assert np.array_equal(trace.covered_tokens, trace.prompt_tokens)
    assert trace.decode_steps is not None
    assert set(trace.decode_steps.tolist()) == {128}


def test_clusters_of_it_load_fewer_experts(trace: ExpertTrace) -> None:
    report = calibrate(trace, CalibrationSettings(n_clusters=8, n_splits=3)).report
    (at_16,) = (change for change in report.held_out if change.batch_size == 16)
    assert at_16.mean_percent < -10
    assert report.control_random_labels_percent is not None
    assert abs(report.control_random_labels_percent) < 1


def test_more_starts_than_the_published_one_save_more(trace: ExpertTrace) -> None:
    wanted = CalibrationSettings(n_clusters=2, held_out_batch_sizes=(16,), n_splits=6)
    (as_published,) = calibrate(trace, replace(wanted, n_starts=1)).report.held_out
    (best_of_four,) = calibrate(trace, wanted).report.held_out
    assert best_of_four.mean_percent < as_published.mean_percent - 1


def test_commands_take_it_where_no_trace_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["traces", "describe"]) == 0
    assert str(RECORDED_TRACE.name) in capsys.readouterr().out


def test_where_it_does_not_ship_a_path_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eldr_runtime.cli.shipped.RECORDED_TRACE", tmp_path / "none.safetensors")
    with pytest.raises(UnreadableFile, match="give PATH"):
        open_given_trace(None)
