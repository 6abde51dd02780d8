"""That the measurements measure what they say, on sizes of no interest; no figure is judged here."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from eldr_runtime.cli.bench import (
    blas_threads,
    capture_costs,
    clustering_costs,
    fit_costs,
    recorded_fit_costs,
    route_costs,
)
from eldr_runtime.cli.capture_cost import CaptureCost, PairedTimes, measure_capture
from eldr_runtime.cli.cost_measurements import (
    ClusterSize,
    Cost,
    FitSize,
    RecordedFit,
    RouteSize,
    measure_wire_kib,
)
from eldr_runtime.errors import UnsupportedEngine

TINY_FIT = FitSize(n_requests=24, n_layers=2, n_experts=8, top_k=2, n_clusters=2, n_pairs=50)
TINY_CLUSTERING = ClusterSize(n_requests=30, n_features=12, n_clusters=3)
TINY_ROUTE = RouteSize(
    n_features=12,
    n_workers=(2, 3),
    n_decisions=40,
    n_tokens=10,
    n_layers=2,
    n_experts=8,
    top_k=2,
    n_repeats=3,
)


def _named(costs: list[Cost]) -> dict[str, Cost]:
    return {cost.what: cost for cost in costs}


def test_a_fit_is_measured_by_stage_in_its_own_process() -> None:
    costs = _named(fit_costs(TINY_FIT, TINY_CLUSTERING))
    total = costs["fit of 24 x 2 x 8, 2 clusters"]
    assert (total.unit, total.target) == ("s", 2.0)
    stages = [cost.measured for what, cost in costs.items() if what.startswith("  of it ")]
    assert len(stages) == 4
    assert 0 < sum(stages) <= total.measured
    assert costs["clustering of 30 x 12, 3 clusters"].measured > 0
    assert costs["clustering of 30 x 12, 3 clusters, peak memory"].measured > 10


def test_what_is_not_measured_is_listed_and_said_so() -> None:
    costs = clustering_costs(None)
    assert [cost.measured for cost in costs] == [None, None]
    assert [cost.target for cost in costs] == [60.0, 4096.0]


def test_costs_of_a_request() -> None:
    costs = _named(route_costs(TINY_ROUTE))
    median = costs["eldr decision, 2 workers x 12 features, median"]
    p99 = costs["eldr decision, 2 workers x 12 features, P99"]
    assert 0 < median.measured <= p99.measured
    assert "eldr_capped decision, 3 workers x 12 features, median" in costs
    assert costs["counting 10 tokens x 2 layers, median"].measured > 0


def test_wire_size_of_a_prompt_is_of_the_order_of_its_counts() -> None:
    # 48 x 128 counts below 2**16 take 12 KiB raw; packed and as text they take less, and more than a quarter
    assert 3 < measure_wire_kib(RouteSize()) < 12


def test_threads_of_the_linear_algebra_are_reported() -> None:
    assert all(n_threads >= 1 for n_threads in blas_threads().values())
    assert blas_threads()


def test_json_names_the_machine_and_its_threads(run_json: Callable[..., dict[str, object]]) -> None:
    document = run_json("bench", "route", "--decisions", "20")
    assert set(document) == {"machine", "costs"}
    assert {"processors", "threads", "numpy", "python", "architecture"} <= set(document["machine"])
    assert {"what", "unit", "measured", "target"} == set(document["costs"][0])


def test_capture_is_told_as_ratios_added_time_and_memory() -> None:
    times = PairedTimes(ratio=1.02, quartiles=(1.01, 1.04), added_ms=0.3)
    cost = CaptureCost(
        n_rounds=4, prefill=times, decode_step=times, peak_mib_with=1210.0, peak_mib_without=1200.0
    )
    costs = _named(capture_costs(cost))
    assert costs["decode step with capture over without, 4 paired rounds, median"].measured == 1.02
    named = "prefill of 16 prompts with capture over without, 4 paired rounds, upper quartile"
    assert costs[named].measured == 1.04
    assert costs["added to a decode step, median"].measured == 0.3
    assert costs["peak memory with capture"].unit == "MiB"


def test_an_environment_without_vllm_is_no_measurement(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedEngine, match="No module named 'vllm'"):
        measure_capture(Path(sys.executable), tmp_path, 2)


# Answers as the probe does, and ends after its rounds.
PROBE = """#!/usr/bin/env python3
import json, sys
is_capturing = sys.argv[-1] == "with"
print("what vLLM prints")
print(json.dumps({"peak_mib": 110.0 if is_capturing else 100.0}), flush=True)
for number, _ in enumerate(sys.stdin):
    if number == N_ROUNDS:
        sys.exit("out of memory")
    print(json.dumps({"prefill_ms": 100.0, "step_ms": 6.0 if is_capturing else 4.0}), flush=True)
"""


def _probe(folder: Path, n_rounds: int) -> Path:
    path = folder / "python"
    path.write_text(PROBE.replace("N_ROUNDS", str(n_rounds)))
    path.chmod(0o755)
    return path


def test_rounds_are_compared_in_pairs(tmp_path: Path) -> None:
    seen: list[int] = []
    cost = measure_capture(_probe(tmp_path, n_rounds=3), tmp_path, 3, seen.append)
    assert cost.decode_step == PairedTimes(ratio=1.5, quartiles=(1.5, 1.5), added_ms=2.0)
    assert (cost.prefill.ratio, cost.prefill.added_ms) == (1.0, 0.0)
    assert (cost.peak_mib_with, cost.peak_mib_without) == (110.0, 100.0)
    assert seen == [1, 2, 3]


def test_a_round_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedEngine, match="out of memory"):
        measure_capture(_probe(tmp_path, n_rounds=1), tmp_path, 2)


def test_a_recorded_trace_is_fitted(pack: Path) -> None:
    costs = _named(recorded_fit_costs(RecordedFit(pack=pack, n_clusters=2, n_pairs=50)))
    assert costs["fit of balanced, recorded, 2 clusters"].measured > 0
