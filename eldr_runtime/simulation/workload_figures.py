"""The two figures a synthetic workload is tuned by."""

import numpy as np

from eldr_runtime.errors import InvalidValue
from eldr_runtime.expert_use import expected_union
from eldr_runtime.simulation.request_profiles import RequestProfiles


def same_topic_reduction_percent(
    profiles: RequestProfiles, *, batch_size: int = 16, n_batches: int = 48, seed: int = 1
) -> float:
    """Return by how much the expected union of one topic's requests is below that of mixed requests.

    Batches of distinct requests, one decode step each; topics count by their share of the pool.
    """
    rng = np.random.default_rng(seed)
    sizes = np.bincount(profiles.topics)
    if sizes.max() < batch_size:
        raise InvalidValue(field="batch_size", value=batch_size, limit=f"at most {sizes.max()} of a topic")
    shares = np.where(sizes >= batch_size, sizes, 0) / sizes[sizes >= batch_size].sum()
    mixed = same = 0.0
    for topic in rng.choice(len(sizes), n_batches, p=shares):
        of_topic = rng.choice(np.flatnonzero(profiles.topics == topic), batch_size, replace=False)
        of_all = rng.choice(len(profiles), batch_size, replace=False)
        same += expected_union(profiles.decode_p[of_topic])
        mixed += expected_union(profiles.decode_p[of_all])
    return 100.0 * (1.0 - same / mixed)


def prefill_decode_correlation(profiles: RequestProfiles, *, n_requests: int = 64) -> float:
    """Return the Pearson correlation of prefill share and decode probability, mean over requests."""
    rows = np.linspace(0, len(profiles) - 1, min(n_requests, len(profiles))).astype(np.int64)
    correlations = [
        np.corrcoef(profiles.prefill_counts[row].ravel(), profiles.decode_p[row].ravel())[0, 1]
        for row in rows
    ]
    return float(np.mean(correlations))
