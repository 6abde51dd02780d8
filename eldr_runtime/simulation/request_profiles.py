"""Synthetic requests with the expert use of a model: topics, sub-topics, and a shift from prefill to decode.

Ours. A request prefers expert e of layer l with log odds `model[l, e] + topic + subtopic + request`, each
drawn once and normal; its decode phase adds a shift of its own. `pick_probabilities` turns these into the
probability that one token picks the expert.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from eldr_runtime.array_types import Counts, Floats, Floats32, Ints
from eldr_runtime.expert_trace import ExpertTrace
from eldr_runtime.simulation.expert_draws import draw_counts, pick_probabilities
from eldr_runtime.simulation.workload_settings import (
    MixName,
    WorkloadSettings,
    mean_topic_shares,
    topic_shares,
)

CHUNK_REQUESTS = 128
SESSION_START_SHARE = 1 / 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RequestProfiles:
    """Distinct requests, in random order.

    Attributes
    ----------
    prefill_counts : uint32 (n_profiles, n_layers, n_experts)
    decode_p : float32 (n_profiles, n_layers, n_experts), probability that one decode step uses the expert
    prompt_tokens : int64 (n_profiles,)
    topics, subtopics : int64 (n_profiles,)
    """

    settings: WorkloadSettings
    seed: int
    prefill_counts: Counts
    decode_p: Floats32
    prompt_tokens: Ints
    topics: Ints
    subtopics: Ints

    def __len__(self) -> int:
        return len(self.topics)

    @property
    def labels(self) -> tuple[str, ...]:
        """Topic of each profile by name."""
        names = self.settings.labels
        return tuple(names[topic] for topic in self.topics)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Preferences:
    """Log odds: model float32 (L, E), topic (n_topics, L, E), subtopic (n_topics, n_subtopics, L, E)."""

    model: Floats32
    topic: Floats32
    subtopic: Floats32


def generate_profiles(
    settings: WorkloadSettings, *, seed: int, shares: Floats | None = None
) -> RequestProfiles:
    """Draw `settings.n_profiles` requests.

    Parameters
    ----------
    seed : draws the requests; the topics come from `settings.seed`
    shares : float64 (n_topics,), share of each topic; the mean of a run where absent

    Examples
    --------
    >>> from eldr_runtime.model_shape import ModelShape
    >>> shape = ModelShape(model="toy", n_layers=2, n_experts=8, top_k=2)
    >>> profiles = generate_profiles(WorkloadSettings(shape=shape, n_profiles=24, prompt_tokens=50), seed=7)
    >>> profiles.prefill_counts.sum(axis=2)[0]
    array([100, 100], dtype=uint64)
    """
    rng = np.random.default_rng([seed, 1])
    shares = mean_topic_shares(settings) if shares is None else shares
    topics = rng.permutation(
        np.repeat(np.arange(settings.n_topics), _shared_out(shares, settings.n_profiles))
    )
    subtopics = rng.integers(0, settings.n_subtopics, len(topics))
    prompt_tokens = draw_lengths(settings.prompt_tokens, settings.length_sigma, len(topics), rng)
    preferences = _draw_preferences(settings)
    decode_p = np.empty((len(topics), *settings.shape.counts_shape), dtype=np.float32)
    prefill_counts = np.empty(decode_p.shape, dtype=np.uint32)
    for chunk in _chunks(len(topics)):
        logits = preferences.model + preferences.topic[topics[chunk]]
        logits += preferences.subtopic[topics[chunk], subtopics[chunk]]
        _add_normal(logits, settings.spread.request, rng)
        prefill_p = pick_probabilities(logits, settings.shape.top_k)
        prefill_counts[chunk] = draw_counts(prefill_p, prompt_tokens[chunk], settings.shape.top_k, rng)
        _add_normal(logits, settings.spread.decode_shift, rng)
        decode_p[chunk] = pick_probabilities(logits, settings.shape.top_k)
    return RequestProfiles(
        settings=settings,
        seed=seed,
        prefill_counts=prefill_counts,
        decode_p=decode_p,
        prompt_tokens=prompt_tokens,
        topics=topics,
        subtopics=subtopics,
    )


def to_trace(profiles: RequestProfiles, *, seed: int | None = None) -> ExpertTrace:
    """Make the expert trace that serving these requests once would have recorded.

    Sessions are runs of requests of one sub-topic. `seed` draws lengths and decode counts.
    """
    settings = profiles.settings
    rng = np.random.default_rng([profiles.seed if seed is None else seed, 2])
    steps = draw_lengths(settings.output_tokens, settings.length_sigma, len(profiles), rng)
    decode_counts = np.empty_like(profiles.prefill_counts)
    for chunk in _chunks(len(profiles)):
        decode_counts[chunk] = draw_counts(profiles.decode_p[chunk], steps[chunk], settings.shape.top_k, rng)
    return ExpertTrace(
        shape=settings.shape,
        prefill_counts=profiles.prefill_counts,
        prompt_tokens=profiles.prompt_tokens,
        covered_tokens=profiles.prompt_tokens.copy(),
        decode_counts=decode_counts,
        decode_steps=steps,
        labels=profiles.labels,
        sessions=_draw_sessions(profiles, rng),
        source=(
            f"synthetic: ELDR workload generator, mix {settings.mix.value}, {settings.n_topics} topics, "
            f"seeds {settings.seed} and {profiles.seed}; no model was run"
        ),
        licence="CC0-1.0",
        signature_note="synthetic requests, not recorded from a model",
    )


def calibration_trace(settings: WorkloadSettings, *, n_requests: int, seed: int) -> ExpertTrace:
    """Draw the trace a calibration before the run would see: the mix at the first arrival."""
    sized = replace(settings, n_profiles=n_requests)
    return to_trace(generate_profiles(sized, seed=seed, shares=topic_shares(settings, 0.0)))


def draw_lengths(median: int, sigma: float, n_requests: int, rng: np.random.Generator) -> Ints:
    """Draw lengths in tokens, log-normal around `median`, at least 1: int64 `(n_requests,)`."""
    if sigma == 0:
        return np.full(n_requests, median, dtype=np.int64)
    lengths = np.rint(median * np.exp(sigma * rng.standard_normal(n_requests)))
    return np.asarray(np.maximum(lengths, 1), dtype=np.int64)


def _draw_preferences(settings: WorkloadSettings) -> _Preferences:
    rng = np.random.default_rng([settings.seed, 0])
    spread, counts_shape = settings.spread, settings.shape.counts_shape
    has_topics = settings.mix is not MixName.UNIFORM
    model = rng.standard_normal(counts_shape, dtype=np.float32) * np.float32(spread.model)
    topic = rng.standard_normal((settings.n_topics, *counts_shape), dtype=np.float32)
    topic *= np.float32(spread.topic * has_topics)
    subtopic = rng.standard_normal((settings.n_topics, settings.n_subtopics, *counts_shape), dtype=np.float32)
    subtopic *= np.float32(spread.subtopic * has_topics)
    return _Preferences(model=model, topic=topic, subtopic=subtopic)


def _add_normal(logits: Floats32, scale: float, rng: np.random.Generator) -> None:
    noise = rng.standard_normal(logits.shape, dtype=np.float32)
    noise *= np.float32(scale)
    logits += noise


def _shared_out(shares: Floats, n_profiles: int) -> Ints:
    """Share out by largest remainder, with at least one profile for a topic that has any share."""
    exact = shares * n_profiles
    counts = np.floor(exact).astype(np.int64)
    order = np.argsort(counts - exact, kind="stable")
    counts[order[: n_profiles - int(counts.sum())]] += 1
    for topic in np.flatnonzero((shares > 0) & (counts == 0)):
        counts[int(counts.argmax())] -= 1
        counts[topic] += 1
    return counts


def _draw_sessions(profiles: RequestProfiles, rng: np.random.Generator) -> tuple[str, ...]:
    group = profiles.topics * profiles.settings.n_subtopics + profiles.subtopics
    order = np.argsort(group, kind="stable")
    starts = rng.random(len(order)) < SESSION_START_SHARE
    starts[1:] |= group[order][1:] != group[order][:-1]
    starts[0] = True
    session = np.empty(len(order), dtype=np.int64)
    session[order] = np.cumsum(starts) - 1
    return tuple(f"session-{number:05d}" for number in session)


def _chunks(n_requests: int) -> Iterator[slice]:
    for start in range(0, n_requests, CHUNK_REQUESTS):
        yield slice(start, min(start + CHUNK_REQUESTS, n_requests))
