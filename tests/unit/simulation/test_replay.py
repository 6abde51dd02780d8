from dataclasses import replace

import numpy as np
import pytest

from eldr_runtime.calibration import CalibrationSettings, fit_version
from eldr_runtime.errors import InvalidValue
from eldr_runtime.latency_model import LatencyModel, find_preset
from eldr_runtime.model_shape import ModelShape
from eldr_runtime.policies.choice import PolicyName, PolicySettings
from eldr_runtime.simulation.cluster import ClusterSettings, SimulationResult
from eldr_runtime.simulation.replay import (
    PolicyComparison,
    Scenario,
    compare_policies,
    enough_profiles,
    measured_window,
    paired_change,
)
from eldr_runtime.simulation.workload import MixName, WorkloadSettings, calibration_trace

SHAPE = ModelShape(model="small", n_layers=4, n_experts=32, top_k=4)
MODEL = LatencyModel(t0_ms=2.0, per_expert_ms=0.3, per_request_ms=0.01, per_kv_token_ms=1e-5)
CLUSTER = ClusterSettings(latency=MODEL, kv_bytes_per_token=1e4, n_decode_workers=4, n_prefill_workers=8)
POLICIES = [
    PolicySettings(policy=name)
    for name in (PolicyName.ELDR, PolicyName.ELDR_CAPPED, PolicyName.JOIN_SHORTEST_QUEUE)
]


def scenario(mix: MixName) -> Scenario:
    workload = WorkloadSettings(
        mix=mix, shape=SHAPE, n_topics=4, prompt_tokens=300, output_tokens=100, n_profiles=300
    )
    return Scenario(workload=workload, cluster=CLUSTER, n_requests=900, rate_per_second=60.0)


def compare(mix: MixName, seeds=(11, 12, 13)) -> PolicyComparison:
    chosen = scenario(mix)
    trace = calibration_trace(chosen.workload, n_requests=200, seed=10)
    version = fit_version(trace, CalibrationSettings(n_clusters=4, n_pairs=500))
    return compare_policies(chosen, POLICIES, version, seeds=seeds)


@pytest.fixture(scope="module")
def balanced() -> PolicyComparison:
    return compare(MixName.BALANCED)


class TestComparison:
    def test_eldr_is_faster_where_there_are_topics(self, balanced):
        eldr, capped, baseline = balanced.rows
        for row in (eldr, capped):
            low, high = row.tpot_median_change.interval
            assert low <= row.tpot_median_change.mean_percent <= high < -3.0
            assert row.figures.mean_active_experts < baseline.figures.mean_active_experts

    def test_nothing_is_gained_where_there_are_none(self):
        for row in compare(MixName.UNIFORM).rows:
            assert row.tpot_median_change.mean_percent == pytest.approx(0.0, abs=1.0)

    def test_the_baseline_does_not_differ_from_itself(self, balanced):
        change = balanced.rows[2].tpot_median_change
        assert change.by_seed == (0.0, 0.0, 0.0)
        assert change.interval == (0.0, 0.0)

    def test_one_seed_has_no_interval_and_repeats_exactly(self, balanced):
        once, again = (compare(MixName.BALANCED, seeds=(12,)) for _ in range(2))
        assert once == again
        assert once.rows[0].tpot_median_change.interval is None
        assert once.rows[0].tpot_median_change.by_seed[0] == balanced.rows[0].tpot_median_change.by_seed[1]

    def test_progress_counts_the_runs(self):
        calls = []
        compare_policies(
            scenario(MixName.BALANCED),
            [PolicySettings(policy=PolicyName.JOIN_SHORTEST_QUEUE), PolicySettings(policy=PolicyName.RANDOM)],
            None,
            seeds=(1, 2),
            on_progress=lambda done, total: calls.append((done, total)),
        )
        assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]


def result_of(arrival_seconds, stay_seconds) -> SimulationResult:
    arrival_ms = np.asarray(arrival_seconds) * 1e3
    nothing = np.zeros(len(arrival_ms))
    return SimulationResult(
        worker_ids=("a",),
        arrival_ms=arrival_ms,
        finish_ms=arrival_ms + np.asarray(stay_seconds) * 1e3,
        ttft_ms=nothing,
        tpot_ms=nothing,
        worker_of=np.zeros(len(arrival_ms), dtype=np.int64),
        batch=nothing,
        active_experts=nothing,
        load_ratio=nothing,
        in_flight_at_end=np.zeros(1, dtype=np.int64),
    )


class TestMeasuredWindow:
    def test_by_hand(self):
        # arrivals at 0, 1, ..., 200 s; median stay 5 s, longest over both policies 20 s: 10 to 180 s count
        arrivals = np.arange(201.0)
        quick, slow = result_of(arrivals, np.full(201, 5.0)), result_of(arrivals, np.full(201, 5.0))
        slow.finish_ms[7] += 15_000
        is_measured = measured_window([quick, slow])
        assert np.flatnonzero(is_measured).tolist() == list(range(10, 181))

    def test_all_that_counts_finishes_while_requests_still_arrive(self):
        rng = np.random.default_rng(1)
        arrivals = np.cumsum(rng.exponential(0.1, 3000))
        result = result_of(arrivals, rng.exponential(3.0, 3000))
        is_measured = measured_window([result])
        assert result.finish_ms[is_measured].max() <= result.arrival_ms[-1]

    def test_too_short_a_run_says_what_it_takes(self):
        message = r"n_requests is 201; must be enough for 100 .* arrivals span 200\.0 s, .* take 180\.0 s"
        with pytest.raises(InvalidValue, match=message):
            measured_window([result_of(np.arange(201.0), np.full(201, 60.0))])


class TestPairedChange:
    def test_by_hand(self):
        # changes -10, -20, -30: mean -20, standard deviation 10, error 10 / sqrt(3), t(0.975, 2) = 4.302653
        change = paired_change([9.0, 8.0, 7.0], [10.0, 10.0, 10.0])
        assert change.mean_percent == pytest.approx(-20.0)
        assert change.interval == pytest.approx((-44.841, 4.841), abs=1e-3)


class TestEnoughProfiles:
    def test_by_hand(self):
        cluster = ClusterSettings.of_preset(find_preset("qwen3-30b-a3b-mi300x"))
        # 60 * 512 * (5.59 + 0.113 * 128) ms = 616.05 in flight
        assert enough_profiles(cluster, WorkloadSettings(), 60.0) == 1232
        assert enough_profiles(cluster, WorkloadSettings(), 1.0) == 1000
        assert enough_profiles(cluster, WorkloadSettings(), 5000.0) == 8000


class TestRefusals:
    def test_scenario(self):
        with pytest.raises(InvalidValue, match="rate_per_second is -1"):
            replace(scenario(MixName.BALANCED), rate_per_second=-1.0)
        with pytest.raises(InvalidValue, match="n_requests is 99; must be at least 100"):
            replace(scenario(MixName.BALANCED), n_requests=99)

    @pytest.mark.parametrize(
        ("names", "seeds", "message"),
        [
            (["eldr", "eldr", "join_shortest_queue"], (1,), "policies is"),
            (["eldr"], (1,), "baseline is 'join_shortest_queue'; must be one of the compared: eldr"),
            (["join_shortest_queue"], (1, 1), r"seeds is \[1, 1\]; must be distinct"),
            (["join_shortest_queue"], (), r"seeds is \[\]"),
        ],
    )
    def test_policies_and_seeds(self, names, seeds, message):
        policies = [PolicySettings(policy=PolicyName(name)) for name in names]
        with pytest.raises(InvalidValue, match=message):
            compare_policies(scenario(MixName.BALANCED), policies, None, seeds=seeds)

    def test_single_tokens_have_no_time_per_token(self):
        chosen = scenario(MixName.BALANCED)
        single = replace(chosen, workload=replace(chosen.workload, output_tokens=1))
        with pytest.raises(InvalidValue, match="output_tokens is 1; must be at least 2"):
            compare_policies(
                single, [PolicySettings(policy=PolicyName.JOIN_SHORTEST_QUEUE)], None, seeds=(1,)
            )
