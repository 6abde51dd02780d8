"""The client's report is what a calibration writes."""

import json
from dataclasses import replace
from typing import Any

import numpy as np

from controlplane.domain.calibrations import CalibrationReport
from eldr_runtime.calibration import CalibrationSettings, calibrate
from eldr_runtime.expert_trace import ExpertTrace
from eldr_runtime.json_values import from_json_value
from eldr_runtime.model_shape import ModelShape

SETTINGS = CalibrationSettings(n_clusters=4, n_pairs=400, n_splits=3, held_out_batch_sizes=(4, 64))


def _trace(**changes: Any) -> ExpertTrace:
    source = np.random.default_rng(0)
    topics = source.integers(4, size=96)
    likely = np.where(np.arange(16) // 4 == topics[:, None, None], 0.235, 0.005)
    counts = source.multinomial(2 * 64, np.broadcast_to(likely, (2, 96, 2, 16))).astype(np.uint32)
    tokens = np.full(96, 64)
    fields: dict[str, Any] = {
        "shape": ModelShape(model="tiny", n_layers=2, n_experts=16, top_k=2),
        "prefill_counts": counts[0],
        "prompt_tokens": tokens,
        "covered_tokens": tokens,
        "decode_counts": counts[1],
        "decode_steps": tokens,
    }
    return ExpertTrace(**(fields | changes))


def _read(trace: ExpertTrace, settings: CalibrationSettings = SETTINGS) -> CalibrationReport:
    written = calibrate(trace, settings).report.to_json()
    return from_json_value(CalibrationReport, json.loads(json.dumps(written)))


def test_a_written_report_is_read() -> None:
    report = _read(_trace())
    assert report.cluster_sizes == (24, 24, 24, 24)
    assert "count_idf" in report.rho_by_transform
    assert report.rho_by_layer_count is not None
    assert len(report.rho_by_layer_count) == 2
    assert report.held_out["batch_64"] is None
    [(size, change)] = report.held_out_by_batch()
    assert size == 4
    assert change.interval[0] <= change.mean_percent <= change.interval[1] < 0
    assert report.control.random_labels_percent is not None


def test_without_decode_counts_it_says_what_was_not_judged() -> None:
    settings = replace(SETTINGS, select_layers=False)
    report = _read(_trace(decode_counts=None, decode_steps=None), settings)
    assert report.rho is None
    assert report.rho_interval is None
    assert report.held_out_by_batch() == ()
    assert report.control.random_labels_percent is None


def test_batch_sizes_come_in_the_order_of_numbers() -> None:
    report = _read(_trace())
    change = report.held_out["batch_4"]
    assert change is not None
    shuffled = {"batch_128": change, "batch_16": change, "batch_4": None, "batch_32": change}
    sizes = [size for size, _ in replace(report, held_out=shuffled).held_out_by_batch()]
    assert sizes == [16, 32, 128]
