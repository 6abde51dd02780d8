from dataclasses import replace

import numpy as np
import pytest

from eldr_runtime.errors import InvalidValue
from eldr_runtime.simulation.workload import WorkloadSettings, generate_profiles
from eldr_runtime.simulation.workload_figures import prefill_decode_correlation, same_topic_reduction_percent


@pytest.fixture
def profiles(tiny_shape):
    return generate_profiles(WorkloadSettings(shape=tiny_shape, n_topics=2, n_profiles=40), seed=1)


def test_two_topics_with_disjoint_experts_by_hand(profiles):
    # one expert for each topic: a same-topic batch activates 1; a mixed one of 20 nearly always 2
    p = np.zeros((40, 1, 2), np.float32)
    p[np.arange(40), 0, profiles.topics] = 1.0
    disjoint = replace(profiles, decode_p=p)
    assert same_topic_reduction_percent(disjoint, batch_size=20) == pytest.approx(50.0, abs=0.1)


def test_equal_shares_correlate_fully(profiles):
    p = (profiles.prefill_counts / 1000).astype(np.float32)
    assert prefill_decode_correlation(replace(profiles, decode_p=p)) == pytest.approx(1.0)


def test_a_batch_larger_than_every_topic_is_refused(profiles):
    with pytest.raises(InvalidValue, match="batch_size is 21; must be at most 20 of a topic"):
        same_topic_reduction_percent(profiles, batch_size=21)
