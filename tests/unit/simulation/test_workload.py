from dataclasses import replace

import numpy as np
import pytest

from eldr_runtime.errors import InvalidValue
from eldr_runtime.simulation.workload import (
    MixName,
    Workload,
    WorkloadSettings,
    generate_profiles,
    generate_workload,
)


@pytest.fixture
def profiles(tiny_shape):
    settings = WorkloadSettings(
        shape=tiny_shape, n_topics=5, n_profiles=50, prompt_tokens=30, output_tokens=20
    )
    return generate_profiles(settings, seed=1)


class TestArrivals:
    def test_rate(self, profiles):
        workload = generate_workload(profiles, n_requests=4000, rate_per_second=50.0, seed=2)
        assert workload.arrival_seconds[-1] == pytest.approx(80.0, rel=0.06)
        gaps = np.diff(workload.arrival_seconds)
        assert gaps.std() == pytest.approx(gaps.mean(), rel=0.1)

    def test_a_profile_returns_only_after_all_others_of_its_topic(self, profiles):
        workload = generate_workload(profiles, n_requests=300, rate_per_second=1.0, seed=2)
        topics = profiles.topics[workload.profile_of]
        for topic in range(5):
            taken = workload.profile_of[topics == topic]
            n_members = int((profiles.topics == topic).sum())
            assert len(set(taken[:n_members])) == n_members
            assert np.array_equal(taken[n_members:], taken[:-n_members])

    def test_labels_and_lengths_belong_to_the_profile(self, profiles):
        workload = generate_workload(profiles, n_requests=40, rate_per_second=1.0, seed=2)
        assert workload.labels == tuple(profiles.labels[i] for i in workload.profile_of)
        assert np.array_equal(workload.prompt_tokens, profiles.prompt_tokens[workload.profile_of])

    def test_drifting_topics_change_over_the_run(self, tiny_shape):
        settings = WorkloadSettings(shape=tiny_shape, mix=MixName.DRIFTING, n_topics=5, n_profiles=60)
        profiles = generate_profiles(settings, seed=1)
        workload = generate_workload(profiles, n_requests=4000, rate_per_second=10.0, seed=4)
        is_first_pair = np.isin(profiles.topics[workload.profile_of], (0, 1))
        assert is_first_pair[:400].mean() == pytest.approx(0.72, abs=0.06)
        assert is_first_pair[-400:].mean() == pytest.approx(0.20, abs=0.06)

    def test_equal_seeds_give_equal_arrivals(self, profiles):
        first, again, other = (
            generate_workload(profiles, n_requests=20, rate_per_second=1.0, seed=seed) for seed in (2, 2, 3)
        )
        assert np.array_equal(first.arrival_seconds, again.arrival_seconds)
        assert not np.array_equal(first.arrival_seconds, other.arrival_seconds)


class TestRefusals:
    def test_rate_and_number(self, profiles):
        with pytest.raises(InvalidValue, match=r"rate_per_second is 0\.0; must be a number above 0"):
            generate_workload(profiles, n_requests=1, rate_per_second=0.0, seed=1)
        with pytest.raises(InvalidValue, match="n_requests is 0; must be at least 1"):
            generate_workload(profiles, n_requests=0, rate_per_second=1.0, seed=1)

    def test_a_pool_without_a_topic_of_the_run(self, profiles):
        is_kept = profiles.topics != 2
        smaller = replace(profiles, topics=profiles.topics[is_kept])
        with pytest.raises(InvalidValue, match="profiles is 'none of topic 2'"):
            generate_workload(smaller, n_requests=50, rate_per_second=1.0, seed=1)

    def test_a_workload_checks_its_arrays(self):
        good = {
            "arrival_seconds": np.array([0.0, 1.0]),
            "profile_of": np.array([0, 0]),
            "prompt_tokens": np.array([1, 1]),
            "output_tokens": np.array([1, 1]),
        }
        for change, message in (
            ({"arrival_seconds": np.array([1.0, 0.0])}, "arrival_seconds"),
            ({"profile_of": np.array([0])}, "profile_of"),
            ({"output_tokens": np.array([1, 0])}, "output_tokens is 0; must be at least 1"),
            ({"labels": ("a",)}, "labels is 1"),
        ):
            with pytest.raises(InvalidValue, match=message):
                Workload(**{**good, **change})
