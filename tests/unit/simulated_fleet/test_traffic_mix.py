from collections import Counter

import numpy as np
import pytest

from eldr_runtime.errors import InvalidConfig
from eldr_runtime.simulated_fleet.profile_pool import PROFILE_IN_PROMPT
from eldr_runtime.simulated_fleet.traffic_mix import TrafficMix, prompt_text, topic_shares_of, unseen_topic_of

LABELS = ["a", "b", "c", "a", "b", "c"]


def make_mix(shares: dict[str, float] | None = None, unseen: str | None = "c") -> TrafficMix:
    return TrafficMix(LABELS, unseen_topic=unseen, topic_shares=shares, rng=np.random.default_rng(4))


def test_balanced_mix_leaves_the_unseen_topic_out() -> None:
    mix = make_mix()
    counts = Counter(LABELS[mix.next_profile()] for _ in range(2000))
    assert set(counts) == {"a", "b"}
    assert counts["a"] == pytest.approx(1000, abs=100)


def test_unseen_share_takes_effect_with_the_next_request() -> None:
    mix = make_mix()
    mix.set_unseen_share(0.25)
    counts = Counter(LABELS[mix.next_profile()] for _ in range(4000))
    assert counts["c"] == pytest.approx(1000, abs=120)
    mix.set_unseen_share(1.0)
    assert {mix.next_profile() for _ in range(4)} == {2, 5}


def test_given_shares_hold_among_the_other_requests() -> None:
    mix = make_mix({"a": 0.1, "b": 0.3})
    counts = Counter(LABELS[mix.next_profile()] for _ in range(4000))
    assert counts["a"] == pytest.approx(1000, abs=120)
    assert mix.topic_shares == {"a": pytest.approx(0.25), "b": pytest.approx(0.75)}


def test_profiles_of_a_topic_come_in_turn() -> None:
    mix = make_mix({"a": 1.0})
    assert [mix.next_profile() for _ in range(4)] == [0, 3, 0, 3]


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_share_outside_its_limits_is_refused(share: float) -> None:
    with pytest.raises(InvalidConfig, match="unseen_topic_share"):
        make_mix().set_unseen_share(share)


def test_unknown_topics_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="unseen_topic"):
        make_mix(unseen="z")
    with pytest.raises(InvalidConfig, match="topic_shares"):
        make_mix({"z": 0.5})
    with pytest.raises(InvalidConfig, match="kept back"):
        make_mix(unseen=None).set_unseen_share(0.5)


def test_unseen_topic_is_the_last_by_name() -> None:
    assert unseen_topic_of(["topic-02", "topic-11", "topic-10"]) == "topic-11"


def test_prompt_has_its_words_and_names_its_profile() -> None:
    for n_words in (4, 5, 150):
        text = prompt_text(37, "1-2", n_words)
        assert len(text.split()) == n_words
        named = PROFILE_IN_PROMPT.search(text)
        assert named is not None
        assert named.group(1) == "37"


def test_topic_shares_are_read_from_pairs() -> None:
    assert topic_shares_of(["a=0.5", "b=c=1"]) == {"a": 0.5, "b=c": 1.0}
    assert topic_shares_of([]) is None
    for wrong in ("a", "a=", "=1"):
        with pytest.raises(InvalidConfig, match="topic"):
            topic_shares_of([wrong])
