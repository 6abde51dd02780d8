"""Work out, once a version is fitted, what its live traffic will be compared with."""

import numpy as np

from controlplane.services.keep_reference import ProjectionReference, StoredReference
from controlplane.services.place_samples import SIMILARITY_DIGITS, nearest, sign_counts
from controlplane.services.sampled_use import random_union_by_layer
from eldr_runtime.array_types import Counts, Floats, Floats32, Ints
from eldr_runtime.calibration import CalibrationResult
from eldr_runtime.drift import DriftReference
from eldr_runtime.expert_trace import ExpertTrace
from eldr_runtime.placed_traffic import PlacedTraffic
from eldr_runtime.signature import usage_of

UNION_BATCH = 16.0
SMALLEST_NORM = 1e-6


def build_projection(trace: ExpertTrace, result: CalibrationResult) -> ProjectionReference:
    """Keep the principal components of a calibration and its requests on them."""
    covered, _ = trace.without_uncovered()
    version, shown = result.version, result.report.projection
    signatures = version.transform.apply(usage_of(version.transform.name, covered.select(shown.rows)))
    clusters = result.report.labels[shown.rows]
    similarities = (signatures * version.centroids[clusters]).sum(axis=1)
    return ProjectionReference(
        mean=shown.mean.astype(np.float32),
        components=shown.components.astype(np.float32),
        explained_share=shown.explained_share,
        centroids=shown.centroid_points,
        points=shown.points,
        clusters=clusters,
        similarities=similarities.astype(np.float32),
        occupancy=np.array(result.report.cluster_sizes, dtype=np.int64),
        labels=result.report.point_labels,
    )


def build_drift_reference(trace: ExpertTrace, result: CalibrationResult) -> StoredReference:
    """Build the reference of a version that was fitted on live traffic, from that traffic.

    A request lies nearer to a centroid it was fitted with than requests to come will, so each is compared
    with the centroid of its cluster as it would be without it.
    """
    version, labels = result.version, result.report.labels
    covered, _ = trace.without_uncovered()
    signatures = sign_counts(version, covered.prefill_counts)
    clusters, _ = nearest(version, signatures)
    similarities = leave_one_out_similarities(signatures, labels, version.centroids)
    is_signed = signatures.any(axis=1)
    traffic = PlacedTraffic(
        similarities=similarities[is_signed].round(SIMILARITY_DIGITS),
        clusters=clusters[is_signed],
        sessions=np.arange(int(is_signed.sum()), dtype=np.int64),
        n_clusters=version.n_centroids,
    )
    reference = DriftReference(
        version_hash=version.content_hash, traffic=traffic, union_ratio=_union_ratio(covered, clusters)
    )
    return StoredReference(reference=reference, ratio_by_worker={})


def leave_one_out_similarities(signatures: Floats32, labels: Ints, centroids: Floats32) -> Floats:
    """Similarity of each request to the nearest centroid, its own cluster's taken without it.

    Parameters
    ----------
    signatures
        float32 `(n_requests, n_features)`, unit norm or zero.
    labels
        int64 `(n_requests,)`: the cluster each request was fitted in.
    centroids
        float32 `(n_centroids, n_features)`.

    Returns
    -------
    float64 `(n_requests,)`.

    Examples
    --------
    Without the first request its cluster is the second alone, at a right angle to it.

    >>> axes = np.eye(2, dtype=np.float32)
    >>> middle = np.full((1, 2), 0.5**0.5, dtype=np.float32)
    >>> leave_one_out_similarities(axes, np.array([0, 0]), middle).tolist()
    [0.0, 0.0]
    """
    sums = np.zeros((len(centroids), signatures.shape[1]))
    np.add.at(sums, labels, signatures)
    with_own = (sums[labels] * signatures).sum(axis=1)  # the dot product with the sum of its cluster
    own = (signatures.astype(np.float64) ** 2).sum(axis=1)  # 1, or 0 for a zero signature
    norm_of_rest = np.sqrt(np.maximum((sums**2).sum(axis=1)[labels] - 2 * with_own + own, 0.0))
    similarities = (signatures @ centroids.T).astype(np.float64)
    # A request alone in its cluster has no other to be like; its similarity to the other centroids counts.
    is_alone = norm_of_rest < SMALLEST_NORM
    similarities[np.arange(len(labels)), labels] = np.where(
        is_alone, -1.0, (with_own - own) / np.maximum(norm_of_rest, SMALLEST_NORM)
    )
    return np.asarray(similarities.max(axis=1), dtype=np.float64)


def _union_ratio(trace: ExpertTrace, clusters: Ints) -> float:
    """Experts that decode uses, over what prefill lets expect, for batches within clusters."""
    if trace.decode_counts is None or trace.decode_steps is None:
        return 1.0
    observed = predicted = 0.0
    for cluster in np.unique(clusters):
        rows = clusters == cluster
        weight = float(rows.sum())
        observed += weight * _union(trace.decode_counts[rows], trace.decode_steps[rows])
        predicted += weight * _union(trace.prefill_counts[rows], trace.covered_tokens[rows])
    return observed / predicted


def _union(counts: Counts, tokens: Ints) -> float:
    pooled: Floats32 = (counts / tokens[:, None, None]).mean(axis=0).astype(np.float32)
    by_layer: Floats = random_union_by_layer(pooled, UNION_BATCH)
    return float(by_layer.mean())
