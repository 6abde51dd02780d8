from dataclasses import replace

import numpy as np
import pytest

from eldr_runtime.simulation.workload import (
    MixName,
    WorkloadSettings,
    calibration_trace,
    generate_profiles,
    to_trace,
)
from eldr_runtime.simulation.workload_figures import prefill_decode_correlation, same_topic_reduction_percent

FULL = WorkloadSettings(n_profiles=400)


@pytest.fixture(scope="module")
def full_profiles():
    return generate_profiles(FULL, seed=5)


@pytest.fixture
def tiny(tiny_shape):
    return WorkloadSettings(
        shape=tiny_shape, n_profiles=60, prompt_tokens=40, output_tokens=20, length_sigma=0.4
    )


class TestTuning:
    def test_same_topic_reduction_at_batch_16(self, full_profiles):
        assert 17.0 <= same_topic_reduction_percent(full_profiles) <= 21.0

    def test_prefill_decode_correlation(self, full_profiles):
        assert 0.70 <= prefill_decode_correlation(full_profiles) <= 0.92

    def test_another_model_and_other_topics_are_tuned_alike(self):
        profiles = generate_profiles(replace(FULL, seed=77, n_profiles=300), seed=6)
        assert 17.0 <= same_topic_reduction_percent(profiles) <= 21.0

    def test_uniform_has_nothing_to_exploit(self):
        profiles = generate_profiles(replace(FULL, mix=MixName.UNIFORM, n_profiles=300), seed=5)
        assert same_topic_reduction_percent(profiles) == pytest.approx(0.0, abs=0.5)
        assert 0.70 <= prefill_decode_correlation(profiles) <= 0.92


class TestProfiles:
    def test_layers_sum_to_top_k_tokens(self, full_profiles):
        sums = full_profiles.prefill_counts.sum(axis=2)
        assert np.array_equal(sums, np.full_like(sums, 8 * 1000))
        assert full_profiles.prefill_counts.max() <= 1000
        assert full_profiles.decode_p.sum(axis=2) == pytest.approx(np.full(sums.shape, 8.0), abs=1e-4)
        assert full_profiles.decode_p.max() < 1.0

    def test_topics_are_shared_out_by_the_mix(self, tiny):
        profiles = generate_profiles(replace(tiny, mix=MixName.SKEWED, n_topics=5), seed=1)
        assert np.bincount(profiles.topics).tolist() == [23, 22, 5, 5, 5]

    def test_equal_seeds_give_equal_requests_and_others_do_not(self, tiny):
        first, again = generate_profiles(tiny, seed=3), generate_profiles(tiny, seed=3)
        other = generate_profiles(tiny, seed=4)
        assert np.array_equal(first.prefill_counts, again.prefill_counts)
        assert np.array_equal(first.decode_p, again.decode_p)
        assert not np.array_equal(first.prefill_counts, other.prefill_counts)

    def test_requests_of_other_seeds_have_the_same_topics(self, tiny):
        calm = replace(
            tiny, n_topics=2, n_subtopics=1, spread=replace(tiny.spread, request=0.05, decode_shift=0.05)
        )
        means = [
            np.stack([profiles.decode_p[profiles.topics == topic].mean(axis=0) for topic in (0, 1)])
            for profiles in (generate_profiles(calm, seed=1), generate_profiles(calm, seed=2))
        ]
        assert np.abs(means[0] - means[1]).max() < 0.05
        assert np.abs(means[0][0] - means[0][1]).max() > 0.2


class TestTrace:
    def test_is_a_whole_pack(self, tiny):
        trace = to_trace(generate_profiles(tiny, seed=3))
        assert len(trace) == 60
        assert trace.has_decode
        assert trace.labels is not None
        assert set(trace.labels) == set(tiny.labels)
        assert "synthetic" in trace.source
        assert trace.licence == "CC0-1.0"

    def test_decode_counts_follow_the_decode_probabilities(self, tiny):
        profiles = generate_profiles(replace(tiny, output_tokens=4000, length_sigma=0.0), seed=3)
        share = to_trace(profiles).decode_share
        assert np.abs(share - profiles.decode_p).max() < 0.06

    def test_a_session_stays_with_one_subtopic(self, tiny):
        profiles = generate_profiles(replace(tiny, n_topics=3), seed=3)
        sessions = np.array(to_trace(profiles).sessions)
        group = profiles.topics * 100 + profiles.subtopics
        sizes = []
        for session in np.unique(sessions):
            assert len(set(group[sessions == session])) == 1
            sizes.append(int((sessions == session).sum()))
        assert max(sizes) > 1

    def test_calibration_comes_before_the_unseen_topic(self, tiny):
        trace = calibration_trace(replace(tiny, mix=MixName.UNSEEN_TOPIC), n_requests=50, seed=2)
        assert len(trace) == 50
        assert tiny.labels[-1] not in set(trace.labels or ())
