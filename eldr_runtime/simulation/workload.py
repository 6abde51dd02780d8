"""Arrivals of synthetic requests: when they come, which profile they are, how long they run.

Re-exports the generator's settings and profiles, so that callers need this module alone.
"""

from dataclasses import dataclass

import numpy as np

from eldr_runtime.array_types import Floats, Ints
from eldr_runtime.errors import InvalidValue
from eldr_runtime.simulation.request_profiles import (
    RequestProfiles,
    calibration_trace,
    draw_lengths,
    generate_profiles,
    to_trace,
)
from eldr_runtime.simulation.workload_settings import (
    ExpertSpread,
    MixName,
    WorkloadSettings,
    mean_topic_shares,
    topic_shares,
)

__all__ = [
    "ExpertSpread",
    "MixName",
    "RequestProfiles",
    "Workload",
    "WorkloadSettings",
    "calibration_trace",
    "generate_profiles",
    "generate_workload",
    "mean_topic_shares",
    "to_trace",
    "topic_shares",
]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Workload:
    """Requests in the order of their arrival.

    Attributes
    ----------
    arrival_seconds : float64 (n_requests,), ascending
    profile_of : int64 (n_requests,), index into the profiles
    prompt_tokens, output_tokens : int64 (n_requests,), at least 1
    labels : topic of each request, or None
    """

    arrival_seconds: Floats
    profile_of: Ints
    prompt_tokens: Ints
    output_tokens: Ints
    labels: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        n_requests = len(self.arrival_seconds)
        if n_requests < 1:
            raise InvalidValue(field="n_requests", value=n_requests, limit="at least 1")
        if np.any(np.diff(self.arrival_seconds) < 0) or not np.all(np.isfinite(self.arrival_seconds)):
            raise InvalidValue(field="arrival_seconds", value="not ascending", limit="finite and ascending")
        for name in ("profile_of", "prompt_tokens", "output_tokens"):
            if getattr(self, name).shape != (n_requests,):
                limit = f"one a request, shape ({n_requests},)"
                raise InvalidValue(field=name, value=f"shape {getattr(self, name).shape}", limit=limit)
        for name in ("prompt_tokens", "output_tokens"):
            if getattr(self, name).min() < 1:
                raise InvalidValue(field=name, value=int(getattr(self, name).min()), limit="at least 1")
        if self.labels is not None and len(self.labels) != n_requests:
            raise InvalidValue(field="labels", value=len(self.labels), limit=f"{n_requests}, one a request")

    def __len__(self) -> int:
        return len(self.arrival_seconds)


def generate_workload(
    profiles: RequestProfiles, *, n_requests: int, rate_per_second: float, seed: int
) -> Workload:
    """Draw Poisson arrivals whose topics follow the mix, each the next profile of its topic in turn.

    Parameters
    ----------
    profiles : the pool; taken in turn, so that copies of one profile arrive as far apart as possible
    seed : draws arrivals, topics and output lengths

    Examples
    --------
    >>> from eldr_runtime.model_shape import ModelShape
    >>> shape = ModelShape(model="toy", n_layers=1, n_experts=4, top_k=1)
    >>> settings = WorkloadSettings(shape=shape, n_topics=2, n_profiles=10, output_tokens=5)
    >>> profiles = generate_profiles(settings, seed=1)
    >>> workload = generate_workload(profiles, n_requests=6, rate_per_second=2.0, seed=3)
    >>> len(workload), workload.output_tokens.tolist()
    (6, [5, 5, 5, 5, 5, 5])
    """
    if n_requests < 1:
        raise InvalidValue(field="n_requests", value=n_requests, limit="at least 1")
    if not (np.isfinite(rate_per_second) and rate_per_second > 0):
        raise InvalidValue(field="rate_per_second", value=rate_per_second, limit="a number above 0")
    settings = profiles.settings
    rng = np.random.default_rng([seed, 3])
    arrival_seconds = np.cumsum(rng.exponential(1 / rate_per_second, n_requests))
    topics = _draw_topics(settings, n_requests, rng)
    profile_of = _take_in_turn(topics, profiles.topics)
    return Workload(
        arrival_seconds=arrival_seconds,
        profile_of=profile_of,
        prompt_tokens=profiles.prompt_tokens[profile_of],
        output_tokens=draw_lengths(settings.output_tokens, settings.length_sigma, n_requests, rng),
        labels=tuple(settings.labels[topic] for topic in topics),
    )


def _draw_topics(settings: WorkloadSettings, n_requests: int, rng: np.random.Generator) -> Ints:
    progress = np.linspace(0.0, 1.0, n_requests)
    shares = np.stack([topic_shares(settings, float(moment)) for moment in np.linspace(0, 1, 201)])
    moment = np.rint(progress * 200).astype(np.int64)
    edges = np.cumsum(shares, axis=1)[moment]
    drawn = (rng.random(n_requests)[:, None] >= edges).sum(axis=1)
    return np.asarray(np.minimum(drawn, settings.n_topics - 1), dtype=np.int64)


def _take_in_turn(topics: Ints, pool_topics: Ints) -> Ints:
    profile_of = np.empty(len(topics), dtype=np.int64)
    for topic in np.unique(topics):
        places, members = np.flatnonzero(topics == topic), np.flatnonzero(pool_topics == topic)
        if members.size == 0:
            raise InvalidValue(field="profiles", value=f"none of topic {topic}", limit="at least one a topic")
        profile_of[places] = members[np.arange(len(places)) % len(members)]
    return profile_of
