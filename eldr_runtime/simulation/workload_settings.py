"""What a synthetic workload is made of, and how the mix of its topics moves during a run."""

import math
from dataclasses import dataclass, field, fields
from enum import StrEnum

import numpy as np

from eldr_runtime.array_types import Floats
from eldr_runtime.errors import InvalidValue
from eldr_runtime.model_shape import ModelShape

SKEWED_SHARE = 0.75
UNSEEN_SHARE = 0.30
UNSEEN_FROM = 1 / 3
DEFAULT_SHAPE = ModelShape(model="Qwen3-30B-A3B", n_layers=48, n_experts=128, top_k=8)


class MixName(StrEnum):
    """How requests spread over topics.

    `balanced`: equally. `skewed`: three quarters on two topics. `drifting`: as skewed, but the two topics
    give way to two others from the first request to the last. `unseen_topic`: a topic that calibration never
    saw takes 30 % after a third of the run. `uniform`: there are no topics, so there is nothing to exploit.
    """

    BALANCED = "balanced"
    SKEWED = "skewed"
    DRIFTING = "drifting"
    UNSEEN_TOPIC = "unseen_topic"
    UNIFORM = "uniform"


_FEWEST_TOPICS = {MixName.SKEWED: 3, MixName.DRIFTING: 5, MixName.UNSEEN_TOPIC: 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertSpread:
    """Standard deviations of the preferences (log odds) for experts, by what they depend on (ours).

    The defaults are tuned at 48 layers x 128 experts, top-8, to a union of one topic's requests 17-21 %
    below that of mixed ones at batch 16 (measured: 18.8 to 19.2 over six models) and to a correlation of
    prefill and decode use of 0.70-0.92 (measured: 0.86). With a topic added to the model, preferences spread
    by 1.9; those of Qwen3-30B-A3B, pooled over one kind of problem, by 2.1.

    Parameters
    ----------
    model
        Popularity of an expert with every request.
    topic, subtopic
        What requests of one topic share, and those of one of its sub-topics.
    request
        What is a request's own.
    decode_shift
        How the decode phase of a request departs from its prompt.
    """

    model: float = 1.3
    topic: float = 1.4
    subtopic: float = 0.8
    request: float = 0.8
    decode_shift: float = 1.0

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if not 0 <= value <= 5:
                raise InvalidValue(field=f"spread.{item.name}", value=value, limit="from 0 to 5")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSettings:
    """A generator of requests; equal settings describe the same model and topics.

    Parameters
    ----------
    prompt_tokens, output_tokens
        Median lengths.
    length_sigma
        Standard deviation of the logarithm of a length; 0 gives every request the median.
    n_profiles
        Distinct requests held in memory; arrivals reuse them in turn. Keep it above the requests in flight:
        two copies of one profile share all their experts.
    seed
        Draws the model and its topics. Requests and arrivals have seeds of their own.
    """

    mix: MixName = MixName.BALANCED
    shape: ModelShape = DEFAULT_SHAPE
    n_topics: int = 8
    n_subtopics: int = 4
    prompt_tokens: int = 1000
    output_tokens: int = 512
    length_sigma: float = 0.0
    n_profiles: int = 2000
    spread: ExpertSpread = field(default_factory=ExpertSpread)
    seed: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.mix, MixName):
            raise InvalidValue(field="mix", value=self.mix, limit=f"one of {', '.join(MixName)}")
        _check_range("n_topics", self.n_topics, _FEWEST_TOPICS.get(self.mix, 1), 10_000)
        _check_range("n_subtopics", self.n_subtopics, 1, 1_000)
        _check_range("prompt_tokens", self.prompt_tokens, 1, 1_000_000)
        _check_range("output_tokens", self.output_tokens, 1, 1_000_000)
        _check_range("n_profiles", self.n_profiles, self.n_topics, 1_000_000)
        _check_range("seed", self.seed, 0, 2**63 - 1)
        if not 0 <= self.length_sigma <= 2:
            raise InvalidValue(field="length_sigma", value=self.length_sigma, limit="from 0 to 2")
        if self.shape.top_k >= self.shape.n_experts:
            limit = f"below n_experts, {self.shape.n_experts}: else there is no choice to generate"
            raise InvalidValue(field="top_k", value=self.shape.top_k, limit=limit)

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the topics."""
        return tuple(f"topic-{topic:02d}" for topic in range(self.n_topics))


def topic_shares(settings: WorkloadSettings, progress: float) -> Floats:
    """Return the share of each topic after a part of the run.

    Parameters
    ----------
    progress : from 0 (first arrival, and the calibration) to 1 (last arrival)

    Returns
    -------
    float64 (n_topics,), sums to 1

    Examples
    --------
    >>> topic_shares(WorkloadSettings(mix=MixName.SKEWED, n_topics=4), 0.5)
    array([0.375, 0.375, 0.125, 0.125])
    """
    n_topics = settings.n_topics
    if settings.mix is MixName.SKEWED:
        return _two_favoured(n_topics, 0)
    if settings.mix is MixName.DRIFTING:
        return (1 - progress) * _two_favoured(n_topics, 0) + progress * _two_favoured(n_topics, 2)
    if settings.mix is MixName.UNSEEN_TOPIC:
        unseen = UNSEEN_SHARE if progress >= UNSEEN_FROM else 0.0
        shares = np.full(n_topics, (1 - unseen) / (n_topics - 1))
        shares[-1] = unseen
        return shares
    return np.full(n_topics, 1 / n_topics)


def mean_topic_shares(settings: WorkloadSettings) -> Floats:
    """Return the shares of the topics over a whole run, float64 `(n_topics,)`."""
    steps = (np.arange(60) + 0.5) / 60
    return np.asarray(np.mean([topic_shares(settings, float(step)) for step in steps], axis=0))


def _two_favoured(n_topics: int, first: int) -> Floats:
    shares = np.full(n_topics, (1 - SKEWED_SHARE) / (n_topics - 2))
    shares[first : first + 2] = SKEWED_SHARE / 2
    return shares


def _check_range(name: str, value: int, low: int, high: int) -> None:
    if not (low <= value <= high and math.isfinite(value)):
        raise InvalidValue(field=name, value=value, limit=f"an integer from {low} to {high}")
