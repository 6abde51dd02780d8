"""Which profile the next request is of: topics by share, the profiles of a topic in turn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eldr_runtime.errors import InvalidConfig
from eldr_runtime.simulated_fleet.vllm_answers import WORDS

FEWEST_PROMPT_TOKENS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SetMix:
    """Body of `POST /mix`: the share of requests that come from the unseen topic."""

    unseen_topic_share: float


def unseen_topic_of(labels: Sequence[str]) -> str:
    """Return the topic kept back: the last by name, which the workload generator keeps from calibrations."""
    return max(labels)


class TrafficMix:
    """Draws topics by their shares; the unseen topic's share is set apart and can change at any time.

    Parameters
    ----------
    labels : topic of each profile
    topic_shares : share of each topic among requests that are not of the unseen topic; None: balanced

    Examples
    --------
    >>> mix = TrafficMix(["a", "b", "b"], unseen_topic="b", topic_shares=None, rng=np.random.default_rng(1))
    >>> mix.next_profile()
    0
    >>> mix.set_unseen_share(1.0)
    >>> mix.next_profile(), mix.next_profile(), mix.next_profile()
    (1, 2, 1)
    """

    def __init__(
        self,
        labels: Sequence[str],
        *,
        unseen_topic: str | None,
        topic_shares: Mapping[str, float] | None,
        rng: np.random.Generator,
    ) -> None:
        self._rng = rng
        self._members = {topic: [i for i, label in enumerate(labels) if label == topic] for topic in labels}
        self._turn = dict.fromkeys(self._members, 0)
        self.unseen_topic = unseen_topic
        if unseen_topic is not None and unseen_topic not in self._members:
            raise InvalidConfig(field="unseen_topic", value=unseen_topic, limit=self._known())
        self.unseen_topic_share = 0.0
        self.topic_shares = self._checked(topic_shares)
        self._topics = list(self.topic_shares)
        self._edges = np.cumsum(list(self.topic_shares.values()))

    def set_unseen_share(self, share: float) -> None:
        """Let this share of the requests come from the unseen topic from now on."""
        if not 0 <= share <= 1:
            raise InvalidConfig(field="unseen_topic_share", value=share, limit="from 0 to 1")
        if share > 0 and self.unseen_topic is None:
            raise InvalidConfig(field="unseen_topic_share", value=share, limit="0: no topic is kept back")
        self.unseen_topic_share = share

    def next_profile(self) -> int:
        """Draw the next request's profile."""
        if self.unseen_topic is not None and self._rng.random() < self.unseen_topic_share:
            topic = self.unseen_topic
        else:
            place = int(np.searchsorted(self._edges, self._rng.random() * self._edges[-1], side="right"))
            topic = self._topics[place]
        members = self._members[topic]
        turn = self._turn[topic]
        self._turn[topic] = (turn + 1) % len(members)
        return members[turn]

    def _checked(self, shares: Mapping[str, float] | None) -> dict[str, float]:
        seen = sorted(topic for topic in self._members if topic != self.unseen_topic)
        if shares is None:
            if not seen:
                raise InvalidConfig(
                    field="labels", value=self.unseen_topic, limit="more than the unseen topic"
                )
            return {topic: 1 / len(seen) for topic in seen}
        for topic, share in shares.items():
            if topic not in self._members:
                raise InvalidConfig(field="topic_shares", value=topic, limit=self._known())
            if not 0 <= share <= 1:
                raise InvalidConfig(field=f"topic_shares.{topic}", value=share, limit="from 0 to 1")
        total = sum(shares.values())
        if total <= 0:
            raise InvalidConfig(field="topic_shares", value=total, limit="above 0 in sum")
        return {topic: share / total for topic, share in shares.items() if share > 0}

    def _known(self) -> str:
        return f"one of the pack's topics: {', '.join(sorted(self._members))}"


def prompt_text(profile: int, serial: str, n_words: int) -> str:
    """Return a prompt of exactly `n_words` words that names its profile; its start is the request's own.

    So prompts share no prefix: a prefix cache finds nothing, and routers spread them over prefill workers.

    Examples
    --------
    >>> prompt_text(172, "1-9", 6)
    'request 1-9 profile 172: light paper'
    """
    filler = " ".join(WORDS[i % len(WORDS)] for i in range(2, n_words - 2))
    return f"request {serial} profile {profile}: {filler}".rstrip()


def topic_shares_of(pairs: Sequence[str]) -> dict[str, float] | None:
    """Read `topic=share` pairs; None where there are none."""
    shares: dict[str, float] = {}
    for pair in pairs:
        topic, equals, text = pair.rpartition("=")
        try:
            shares[topic] = float(text)
        except ValueError:
            equals = ""
        if not equals or not topic:
            raise InvalidConfig(field="topic", value=pair, limit="TOPIC=SHARE, such as topic-03=0.5")
    return shares or None
