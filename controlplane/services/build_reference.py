"""Work out, once a version is fitted, what its live traffic will be compared with."""

import numpy as np

from controlplane.services.keep_reference import ProjectionReference, StoredReference
from controlplane.services.place_samples import SIMILARITY_DIGITS, nearest, sign_counts
from controlplane.services.sampled_use import random_union_by_layer
from eldr_runtime.array_types import Counts, Floats, Floats32, Ints
from eldr_runtime.calibration import CalibrationResult, CalibrationSettings, fit_version
from eldr_runtime.centroid_version import CentroidVersion
from eldr_runtime.drift import DriftReference
from eldr_runtime.expert_trace import ExpertTrace
from eldr_runtime.held_out_union import split_half
from eldr_runtime.placed_traffic import PlacedTraffic
from eldr_runtime.signature import usage_of

UNION_BATCH = 16.0


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


def build_drift_reference(
    trace: ExpertTrace, version: CentroidVersion, settings: CalibrationSettings
) -> StoredReference:
    """Build the reference of a version that was fitted on live traffic, from that traffic.

    A request lies nearer to centroids it was fitted on than to others, so each half of the requests is
    placed at the centroids of a fit on the other half; its cluster is that of the version itself.
    """
    covered, _ = trace.without_uncovered()
    signatures = sign_counts(version, covered.prefill_counts)
    clusters, _ = nearest(version, signatures)
    similarities = np.empty(len(covered))
    for fitted, held_out in _crossed(covered, settings.seed):
        other = fit_version(covered.select(fitted), settings, inherit=version)
        similarities[held_out] = nearest(other, signatures[held_out])[1]
    is_signed = signatures.any(axis=1)
    n_signed = int(is_signed.sum())
    traffic = PlacedTraffic(
        similarities=similarities[is_signed].round(SIMILARITY_DIGITS),
        clusters=clusters[is_signed],
        sessions=np.arange(n_signed, dtype=np.int64),
        n_clusters=version.n_centroids,
    )
    reference = DriftReference(
        version_hash=version.content_hash, traffic=traffic, union_ratio=_union_ratio(covered, clusters)
    )
    return StoredReference(reference=reference, ratio_by_worker={})


def _crossed(trace: ExpertTrace, seed: int) -> tuple[tuple[Ints, Ints], tuple[Ints, Ints]]:
    one, other = split_half(trace.labels, len(trace), seed)
    return (one, other), (other, one)


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
