"""Small traces of topics that share no experts, and versions fitted on them."""

from datetime import UTC, datetime
from itertools import combinations

import numpy as np

from eldr_runtime.array_types import Floats32
from eldr_runtime.balanced_kmeans import BalancedSphericalKMeans
from eldr_runtime.centroid_version import CentroidVersion, VersionOrigin
from eldr_runtime.expert_trace import ExpertTrace
from eldr_runtime.expert_use import mean_use
from eldr_runtime.model_shape import ModelShape
from eldr_runtime.signature import SignatureTransform, TransformName, fit_signature_transform

SHAPE = ModelShape(model="tiny", n_layers=2, n_experts=16, top_k=2)


def topic_trace(n_requests: int, n_topics: int, seed: int = 0, *, labelled: bool = False) -> ExpertTrace:
    """Requests of equally likely topics, each with its own four experts; one topic is a uniform mix."""
    rng = np.random.default_rng(seed)
    topics = rng.integers(n_topics, size=n_requests)
    counts = np.zeros((2, n_requests, 2, 16), dtype=np.uint32)
    for topic in range(n_topics):
        pairs = list(combinations(range(16) if n_topics == 1 else range(4 * topic, 4 * topic + 4), 2))
        picks = np.zeros((len(pairs), 16), dtype=np.int64)
        np.put_along_axis(picks, np.array(pairs), 1, axis=1)
        of_topic = np.flatnonzero(topics == topic)
        drawn = rng.multinomial(20, np.full(len(pairs), 1 / len(pairs)), size=(2, len(of_topic), 2))
        counts[:, of_topic] = drawn @ picks
    tokens = np.full(n_requests, 20)
    return ExpertTrace(
        shape=SHAPE,
        prefill_counts=counts[0],
        prompt_tokens=tokens,
        covered_tokens=tokens,
        decode_counts=counts[1],
        decode_steps=tokens,
        labels=tuple(f"topic {topic}" for topic in topics) if labelled else None,
    )


def version_of(trace: ExpertTrace, transform: SignatureTransform, centroids: Floats32) -> CentroidVersion:
    return CentroidVersion(
        shape=trace.shape,
        transform=transform,
        centroids=centroids,
        mean_use=mean_use(trace.prefill_counts, trace.covered_tokens),
        seed=1,
        origin=VersionOrigin.CALIBRATION,
        parent_hash=None,
        n_requests=len(trace),
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


def fit(trace: ExpertTrace, seed: int, n_clusters: int = 4) -> CentroidVersion:
    transform = fit_signature_transform(TransformName.COUNT, trace)
    rows = transform.apply(trace.prefill_counts)
    return version_of(trace, transform, BalancedSphericalKMeans(n_clusters, seed=seed).fit(rows).centroids_)
