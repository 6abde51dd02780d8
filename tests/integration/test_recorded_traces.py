"""The traces recorded from real models, where they are at hand."""

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from eldr_runtime.expert_trace import ExpertTrace
from eldr_runtime.signature import TransformName, fit_signature_transform
from eldr_runtime.signature_quality import estimate_rho
from eldr_runtime.trace_import import import_raw


@pytest.fixture(scope="module")
def shared_data() -> Path:
    beside = Path(__file__).resolve().parents[2].parent / "shared" / "data"
    folder = Path(os.environ.get("ELDR_SHARED_DATA", beside))
    if not folder.is_dir():
        pytest.skip(f"no recorded traces at {folder}: set ELDR_SHARED_DATA")
    return folder


@pytest.fixture(scope="module")
def gpt_oss_20b(shared_data: Path) -> ExpertTrace:
    return import_raw(shared_data / "gpt-oss-20b")


def test_gpt_oss_20b(gpt_oss_20b: ExpertTrace) -> None:
    trace = gpt_oss_20b
    assert len(trace) == 703
    shape = trace.shape
    assert (shape.n_layers, shape.n_experts, shape.top_k) == (24, 32, 4)
    assert trace.decode_steps is not None
    assert int(trace.prompt_tokens.sum() + trace.decode_steps.sum()) == 215_438
    n_tokens = trace.prompt_tokens + trace.decode_steps
    assert (trace.prompt_tokens == np.maximum(n_tokens // 4, 1)).all()
    assert trace.labels is not None
    assert trace.labels[0] == "fact checking"
    n_of = Counter(trace.labels)
    assert (len(n_of), n_of["safety"], n_of["other"]) == (17, 88, 22)
    assert trace.signature_note is not None
    assert "first quarter" in trace.signature_note


@pytest.mark.parametrize(
    ("name", "known"),
    [(TransformName.COUNT, 0.84), (TransformName.COUNT_IDF, 0.74), (TransformName.BINARY, 0.40)],
)
def test_rho_on_gpt_oss_20b_is_the_known_value(
    gpt_oss_20b: ExpertTrace, name: TransformName, known: float
) -> None:
    trace = gpt_oss_20b
    signatures = fit_signature_transform(name, trace).apply(trace.prefill_counts)
    assert trace.decode_counts is not None
    estimate = estimate_rho(signatures, trace.decode_counts, seed=1, n_bootstrap=20)
    assert estimate.rho == pytest.approx(known, abs=0.02)


def test_qwen3_languages(shared_data: Path) -> None:
    trace = import_raw(shared_data / "qwen3-30b-a3b-languages")
    shape = trace.shape
    assert (len(trace), shape.n_layers, shape.n_experts, shape.top_k) == (8, 48, 128, 8)
    assert trace.labels == ("en", "zh", "ja", "de", "es", "fr", "sw", "bn")
    assert not trace.has_decode
