from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eldr_runtime.centroid_version import CentroidVersion, VersionOrigin
from eldr_runtime.errors import InvalidValue
from eldr_runtime.expert_use import mean_use
from eldr_runtime.latency_model import LatencyModel, find_preset
from eldr_runtime.model_shape import ModelShape
from eldr_runtime.policies.choice import PolicyName, PolicySettings, RoutingRequest
from eldr_runtime.policies.registry import build_policy
from eldr_runtime.signature import TransformName, fit_signature_transform
from eldr_runtime.simulation.cluster import BY_LOAD_ALONE, ClusterSettings, prepare_traffic, simulate
from eldr_runtime.simulation.workload import WorkloadSettings, generate_profiles, generate_workload, to_trace
from eldr_runtime.worker_load import PoolView

SHAPE = ModelShape(model="tiny", n_layers=3, n_experts=12, top_k=3)
MODEL = LatencyModel(t0_ms=5.0, per_expert_ms=0.5, per_request_ms=0.1, per_kv_token_ms=1e-3)
CLUSTER = ClusterSettings(latency=MODEL, kv_bytes_per_token=1e5, n_decode_workers=3, n_prefill_workers=2)


def topic_version(trace):
    """A version whose centroids are the mean signatures of the topics."""
    transform = fit_signature_transform(TransformName.COUNT, trace)
    signatures = transform.apply(trace.prefill_counts)
    labels = np.array(trace.labels)
    centroids = np.stack([signatures[labels == label].mean(axis=0) for label in np.unique(labels)])
    return CentroidVersion(
        shape=trace.shape,
        transform=transform,
        centroids=centroids / np.linalg.norm(centroids, axis=1, keepdims=True),
        mean_use=mean_use(trace.prefill_counts, trace.covered_tokens),
        seed=1,
        origin=VersionOrigin.CALIBRATION,
        parent_hash=None,
        n_requests=len(trace),
        created_at=datetime.now(UTC),
    )


@pytest.fixture(scope="module")
def profiles():
    workload = WorkloadSettings(
        shape=SHAPE, n_topics=3, n_profiles=60, prompt_tokens=40, output_tokens=12, length_sigma=0.5
    )
    return generate_profiles(workload, seed=1)


@pytest.fixture(scope="module")
def version(profiles):
    return topic_version(to_trace(profiles))


def traffic_of(profiles, version, n_requests=80, rate=40.0, seed=2):
    workload = generate_workload(profiles, n_requests=n_requests, rate_per_second=rate, seed=seed)
    return prepare_traffic(workload, profiles, version)


class TestInvariants:
    @settings(max_examples=40, deadline=None)
    @given(
        st.sampled_from([name for name in PolicyName if name is not PolicyName.DOMAIN]),
        st.integers(1, 120),
        st.floats(0.5, 400.0),
        st.integers(0, 999),
    )
    def test_every_request_finishes_once_and_the_load_returns_to_zero(
        self, profiles, version, policy, n_requests, rate, seed
    ):
        traffic = traffic_of(profiles, version, n_requests, rate, seed)
        workload = traffic.workload
        result = simulate(traffic, PolicySettings(policy=policy), CLUSTER, seed=seed)
        assert result.in_flight_at_end.tolist() == [0, 0, 0]
        assert np.all((result.worker_of >= 0) & (result.worker_of < 3))
        assert np.all(np.isfinite(result.finish_ms))
        least = CLUSTER.prefill_ms(workload.prompt_tokens) + CLUSTER.transfer_ms(workload.prompt_tokens)
        assert np.all(result.ttft_ms >= least + MODEL.t0_ms)
        assert np.all(result.finish_ms >= result.arrival_ms + result.ttft_ms - 1e-9)
        is_single = workload.output_tokens == 1
        assert np.array_equal(np.isnan(result.tpot_ms), is_single)
        assert np.all(result.tpot_ms[~is_single] >= MODEL.t0_ms)
        assert np.all(result.batch >= 1 - 1e-9)
        assert np.all(result.batch <= n_requests)
        assert np.all(result.active_experts >= SHAPE.top_k - 1e-3)
        assert np.all(result.active_experts <= SHAPE.n_experts)
        assert np.all(result.load_ratio >= 1 - 1e-9)

    def test_a_lone_request_by_hand(self, profiles):
        traffic = traffic_of(profiles, None, n_requests=1)
        prompt, output = (int(n[0]) for n in (traffic.workload.prompt_tokens, traffic.workload.output_tokens))
        result = simulate(traffic, PolicySettings(policy=PolicyName.ROUND_ROBIN), CLUSTER, seed=1)
        step_ms = 5.0 + 0.5 * 3 + 0.1 + 1e-3 * prompt  # a single request activates exactly top_k experts
        wait_ms = 30 + 0.03 * prompt + 6 + prompt * 1e5 / 40e9 * 1e3
        assert result.ttft_ms[0] == pytest.approx(wait_ms + step_ms, rel=1e-5)
        # steps 2 to n read prompt + 1 to prompt + n - 1 tokens: on average prompt + n / 2
        assert result.tpot_ms[0] == pytest.approx(step_ms + 1e-3 * output / 2, rel=1e-5)

    def test_equal_seeds_give_equal_runs(self, profiles, version):
        traffic = traffic_of(profiles, version)
        policy = PolicySettings(policy=PolicyName.POWER_OF_TWO_CHOICES)
        runs = [simulate(traffic, policy, CLUSTER, seed=seed) for seed in (5, 5, 6)]
        assert np.array_equal(runs[0].tpot_ms, runs[1].tpot_ms, equal_nan=True)
        assert not np.array_equal(runs[0].worker_of, runs[2].worker_of)


class TestPrefill:
    def test_first_come_first_served_on_one_worker(self, profiles):
        traffic = traffic_of(profiles, None, n_requests=3, rate=1e6)
        one = replace(CLUSTER, n_prefill_workers=1, prefill_base_ms=1000.0, prefill_ms_per_token=0.0)
        result = simulate(traffic, PolicySettings(policy=PolicyName.RANDOM), one, seed=1)
        assert np.diff(result.ttft_ms) == pytest.approx([1000.0, 1000.0], abs=5.0)


class TestPolicies:
    def test_eldr_sends_a_topic_to_its_worker(self, profiles, version):
        traffic = traffic_of(profiles, version, n_requests=120, rate=20.0)
        result = simulate(traffic, PolicySettings(policy=PolicyName.ELDR, tau=0.0), CLUSTER, seed=1)
        topics = profiles.topics[traffic.workload.profile_of]
        agreement = [np.bincount(result.worker_of[topics == topic]).max() for topic in range(3)]
        assert sum(agreement) >= 0.9 * 120

    def test_a_choice_by_load_alone_ignores_similarities(self):
        pool = PoolView(worker_ids=CLUSTER.worker_ids, in_flight=np.array([3, 1, 2]))
        shares = {"law": 0.5, "math": 0.5}
        for policy in sorted(BY_LOAD_ALONE):
            choices = [
                build_policy(PolicySettings(policy=policy), label_shares=shares).choose(
                    RoutingRequest(similarities=similarities, label="law"), pool, np.random.default_rng(1)
                )
                for similarities in (None, np.array([0.9, 0.1, 0.2], np.float32))
            ]
            assert choices[0] == choices[1]

    def test_round_robin_takes_turns_in_the_order_of_prefill(self, profiles):
        traffic = traffic_of(profiles, None, n_requests=9, rate=0.5)
        result = simulate(traffic, PolicySettings(policy=PolicyName.ROUND_ROBIN), CLUSTER, seed=1)
        assert result.worker_of.tolist() == [0, 1, 2] * 3

    def test_domain_knows_the_labels(self, profiles):
        traffic = traffic_of(profiles, None, n_requests=90, rate=20.0)
        shares = dict.fromkeys(profiles.settings.labels, 1 / 3)
        policy = PolicySettings(policy=PolicyName.DOMAIN)
        result = simulate(traffic, policy, CLUSTER, seed=1, label_shares=shares)
        topics = profiles.topics[traffic.workload.profile_of]
        assert all(len(set(result.worker_of[topics == topic])) == 1 for topic in range(3))


class TestRefusals:
    def test_cluster_settings(self):
        preset = find_preset("qwen3-30b-a3b-mi300x")
        with pytest.raises(InvalidValue, match="n_decode_workers is 0; must be an integer from 1 to 100000"):
            ClusterSettings.of_preset(preset, n_decode_workers=0)
        with pytest.raises(InvalidValue, match="transfer_base_ms is -1"):
            replace(CLUSTER, transfer_base_ms=-1.0)
        with pytest.raises(InvalidValue, match="transfer_bytes_per_second is 0"):
            replace(CLUSTER, transfer_bytes_per_second=0.0)
        with pytest.raises(InvalidValue, match="t0_ms is 0"):
            replace(CLUSTER, latency=replace(MODEL, t0_ms=0.0))

    def test_a_version_of_another_model(self, profiles, version):
        other = generate_profiles(
            replace(profiles.settings, shape=replace(SHAPE, model="another"), n_profiles=10), seed=1
        )
        workload = generate_workload(other, n_requests=2, rate_per_second=1.0, seed=1)
        with pytest.raises(InvalidValue, match=r"version\.shape is"):
            prepare_traffic(workload, other, version)
