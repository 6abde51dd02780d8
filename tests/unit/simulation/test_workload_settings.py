import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eldr_runtime.errors import InvalidValue
from eldr_runtime.model_shape import ModelShape
from eldr_runtime.simulation.workload_settings import (
    ExpertSpread,
    MixName,
    WorkloadSettings,
    mean_topic_shares,
    topic_shares,
)


class TestTopicShares:
    @given(st.sampled_from(MixName), st.integers(5, 30), st.floats(0, 1))
    def test_shares_sum_to_one(self, mix, n_topics, progress):
        shares = topic_shares(WorkloadSettings(mix=mix, n_topics=n_topics), progress)
        assert shares.shape == (n_topics,)
        assert shares.sum() == pytest.approx(1.0)
        assert shares.min() >= 0

    def test_drifting_moves_from_two_topics_to_two_others(self):
        settings = WorkloadSettings(mix=MixName.DRIFTING, n_topics=6)
        assert topic_shares(settings, 0.0) == pytest.approx([0.375, 0.375, 0.0625, 0.0625, 0.0625, 0.0625])
        assert topic_shares(settings, 1.0) == pytest.approx([0.0625, 0.0625, 0.375, 0.375, 0.0625, 0.0625])
        assert mean_topic_shares(settings)[:4] == pytest.approx([0.21875] * 4)

    def test_the_unseen_topic_is_absent_at_first(self):
        settings = WorkloadSettings(mix=MixName.UNSEEN_TOPIC, n_topics=8)
        assert topic_shares(settings, 0.3).tolist() == pytest.approx([1 / 7] * 7 + [0.0])
        assert topic_shares(settings, 0.4).tolist() == pytest.approx([0.1] * 7 + [0.3])
        assert mean_topic_shares(settings)[-1] == pytest.approx(0.2)


class TestRefusals:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"mix": "calm"}, "mix is 'calm'; must be one of balanced, skewed"),
            ({"mix": MixName.DRIFTING, "n_topics": 4}, "n_topics is 4; must be an integer from 5"),
            ({"n_profiles": 3}, "n_profiles is 3; must be an integer from 8"),
            ({"prompt_tokens": 0}, "prompt_tokens is 0"),
            ({"length_sigma": 2.5}, "length_sigma is 2.5; must be from 0 to 2"),
            ({"shape": ModelShape(model="m", n_layers=1, n_experts=4, top_k=4)}, "top_k is 4; must be below"),
        ],
    )
    def test_names_field_value_and_limit(self, change, message):
        with pytest.raises(InvalidValue, match=message):
            WorkloadSettings(**change)

    def test_spread(self):
        with pytest.raises(InvalidValue, match=r"spread.topic is nan; must be from 0 to 5"):
            ExpertSpread(topic=float("nan"))

    def test_labels(self):
        assert WorkloadSettings(n_topics=2).labels == ("topic-00", "topic-01")
        assert np.unique(WorkloadSettings(n_topics=300).labels).size == 300
