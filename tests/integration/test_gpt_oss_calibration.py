"""Held-out unions on GPT-OSS-20B, signature from the first quarter of the decode tokens."""

import os
from pathlib import Path

import numpy as np
import pytest

from eldr_runtime.calibration import CalibrationSettings, fit_version
from eldr_runtime.centroid_version import CentroidVersion
from eldr_runtime.expert_trace import ExpertTrace
from eldr_runtime.held_out_union import judge, random_labels_control, split_half
from eldr_runtime.readiness import Verdict, assess
from eldr_runtime.signature import TransformName
from eldr_runtime.trace_import import open_trace
from eldr_runtime.version_comparison import compare_versions

DATA = Path(os.environ.get("ELDR_SHARED_DATA", Path(__file__).parents[3] / "shared" / "data")) / "gpt-oss-20b"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"no GPT-OSS-20B data at {DATA}")

N_CLUSTERS = 8


@pytest.fixture(scope="module")
def trace() -> ExpertTrace:
    return open_trace(DATA)


def without_mask(half: ExpertTrace, transform: TransformName) -> CentroidVersion:
    settings = CalibrationSettings(n_clusters=N_CLUSTERS, transform=transform, select_layers=False)
    return fit_version(half, settings)


@pytest.mark.parametrize(
    "transform", [TransformName.COUNT, TransformName.COUNT_IDF, TransformName.SQRT_COUNT]
)
def test_clusters_cut_the_union_on_every_split(trace: ExpertTrace, transform: TransformName) -> None:
    (judged,) = judge(trace, lambda half, _: without_mask(half, transform), split_seeds=range(5))
    assert judged.mean_percent <= -8.8
    assert max(judged.seeds) <= -7.8
    assert judged.covered_share >= 0.9


def test_random_labels_gain_nothing(trace: ExpertTrace) -> None:
    control = random_labels_control(trace, n_clusters=N_CLUSTERS, split_seeds=range(20))
    assert control is not None
    assert abs(control.mean_percent) <= 0.15
    assert np.abs(control.seeds).max() <= 0.5


def test_balanced_and_sparse_transforms_are_the_same_within_noise(trace: ExpertTrace) -> None:
    train, held_out = split_half(trace.labels, len(trace), 0)
    versions = [
        without_mask(trace.select(train), name) for name in (TransformName.COUNT, TransformName.COUNT_IDF)
    ]
    result = compare_versions(versions[1], versions[0], trace.select(held_out), n_batches=40)
    assert result.interval[0] < result.mean_points < result.interval[1]
    assert abs(result.mean_points) < 1.5


def test_published_fit_over_twenty_splits_is_worth_it(trace: ExpertTrace) -> None:
    report = assess(trace, n_clusters=N_CLUSTERS, batch_sizes=(8, 16, 32))
    judged = next(one for one in report.gain if one.batch_size == 16)
    assert len(judged.seeds) == 20
    assert judged.mean_percent <= -8.8
    assert max(judged.seeds) <= -7.8
    assert judged.interval[1] < -7.8
    assert judged.covered_share >= 0.9
    assert report.verdict is Verdict.WORTH_IT
    assert report.signature_note is not None
    assert next(one for one in report.oracle if one.batch_size == 16).percent < judged.mean_percent
