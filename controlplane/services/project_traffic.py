"""Requests in the principal components of a version: those it was fitted on, or those that come now."""

import numpy as np

from controlplane.domain.calibrations import ClusterExperts, ProjectedPoint, Projection
from controlplane.errors import InvalidField
from controlplane.services.keep_reference import ProjectionReference, read_projection
from controlplane.services.keep_version import get_version, load_version
from controlplane.services.place_samples import nearest, open_counts, sign_counts
from controlplane.services.sampled_use import prefill_use
from controlplane.storage.database import ReadSession
from controlplane.storage.models.versions import VersionRow
from controlplane.storage.repositories import samples, version_references
from controlplane.storage.repositories.samples import SampleFilter, StoredCounts
from eldr_runtime.array_types import Floats, Floats32, Ints
from eldr_runtime.centroid_version import CentroidVersion
from eldr_runtime.signature_projection import project

MOST_POINTS = 5000
DIGITS = 4
N_COMPONENTS = 3
# Opened at once: 500 requests of 48 x 128 are 12 MB of counts.
BLOCK = 500
CLUSTER_REQUESTS = 1000


def project_calibration(session: ReadSession, fleet: str, version_id: str, limit: int) -> Projection:
    """Show the requests a version was fitted on; none for an uploaded version, which came without them."""
    row = get_version(session, fleet, version_id)
    reference = _reference(session, row)
    if reference is None:
        reference = _bare_reference(load_version(session, row), None)
    rows = _thinned(len(reference.points), limit)
    labels = reference.labels
    points = tuple(
        ProjectedPoint(
            request_id=f"calibration-{position}",
            at=None,
            coordinates=_rounded(reference.points[position]),
            cluster=int(reference.clusters[position]),
            worker_id=None,
            label=None if labels is None else labels[position],
            version_number=row.number,
            similarity=round(float(reference.similarities[position]), DIGITS),
        )
        for position in rows.tolist()
    )
    return _projection(row, reference, points, reference.occupancy, is_live=False)


def project_live(session: ReadSession, fleet: str, version_id: str, limit: int) -> Projection:
    """Show the newest sampled requests on the components of a version, placed at its centroids."""
    row = get_version(session, fleet, version_id)
    version = _load_countable(session, row)
    stored = samples.read_counts(session, fleet, SampleFilter(), limit=limit)
    reference = _reference(session, row)
    if reference is None:
        reference = _bare_reference(version, _signatures(version, stored) if stored else None)
    points: list[ProjectedPoint] = []
    occupancy = np.zeros(version.n_centroids, dtype=np.int64)
    for start in range(0, len(stored), BLOCK):
        block = stored[start : start + BLOCK]
        signatures = _signatures(version, block)
        clusters, similarities = nearest(version, signatures)
        occupancy += np.bincount(clusters, minlength=version.n_centroids)
        points += _live_points(block, reference.place(signatures), clusters, similarities)
    return _projection(row, reference, tuple(points), occupancy, is_live=True)


def show_cluster_experts(session: ReadSession, fleet: str, version_id: str, cluster: int) -> ClusterExperts:
    """Pool the prefill use of the newest sampled requests that lie nearest to one centroid."""
    row = get_version(session, fleet, version_id)
    version = _load_countable(session, row)
    if not 0 <= cluster < version.n_centroids:
        limit = f"from 0 to {version.n_centroids - 1}, the clusters of version {row.number}"
        raise InvalidField(field="cluster", value=cluster, limit=limit)
    total = np.zeros(version.shape.counts_shape, dtype=np.float64)
    n_requests = 0
    stored = samples.read_counts(session, fleet, SampleFilter(), limit=CLUSTER_REQUESTS)
    for start in range(0, len(stored), BLOCK):
        block = stored[start : start + BLOCK]
        clusters, _ = nearest(version, _signatures(version, block))
        mine = [each for each, found in zip(block, clusters.tolist(), strict=True) if found == cluster]
        if mine:
            total += prefill_use(mine, version.shape).sum(axis=0, dtype=np.float64)
            n_requests += len(mine)
    use = (total / n_requests).round(DIGITS) if n_requests else total
    return ClusterExperts(
        version_id=version_id,
        cluster=cluster,
        n_requests=n_requests,
        use=tuple(tuple(layer) for layer in use.tolist()),
    )


def _load_countable(session: ReadSession, row: VersionRow) -> CentroidVersion:
    version = load_version(session, row)
    if version.transform.name.needs_gates:
        limit = f"a version that places expert counts; version {row.number} needs gate values"
        raise InvalidField(field="version_id", value=row.id, limit=limit)
    return version


def _signatures(version: CentroidVersion, stored: list[StoredCounts]) -> Floats32:
    return sign_counts(version, open_counts([each.prefill_counts for each in stored], version.shape))


def _live_points(
    stored: list[StoredCounts], placed: Floats32, clusters: Ints, similarities: Floats32
) -> list[ProjectedPoint]:
    return [
        ProjectedPoint(
            request_id=each.request_id,
            at=each.at,
            coordinates=_rounded(placed[position]),
            cluster=int(clusters[position]),
            worker_id=each.decode_worker or None,
            label=each.label,
            version_number=each.version_number,
            similarity=round(float(similarities[position]), DIGITS),
        )
        for position, each in enumerate(stored)
    ]


def _reference(session: ReadSession, row: VersionRow) -> ProjectionReference | None:
    data = version_references.find_projection(session, row.id)
    return None if data is None else read_projection(data)


def _bare_reference(version: CentroidVersion, signatures: Floats32 | None) -> ProjectionReference:
    """Make components of live signatures, or of the centroids alone, for a version that came without any."""
    shown = version.centroids if signatures is None else signatures
    n_components = min(N_COMPONENTS, *shown.shape)
    fitted = project(shown, version.centroids, n_components, seed=version.seed)
    return ProjectionReference(
        mean=fitted.mean.astype(np.float32),
        components=fitted.components.astype(np.float32),
        explained_share=fitted.explained_share,
        centroids=fitted.centroid_points,
        points=np.zeros((0, n_components)),
        clusters=np.zeros(0, dtype=np.int64),
        similarities=np.zeros(0, dtype=np.float32),
        occupancy=np.zeros(version.n_centroids, dtype=np.int64),
        labels=None,
    )


def _projection(
    row: VersionRow,
    reference: ProjectionReference,
    points: tuple[ProjectedPoint, ...],
    occupancy: Ints,
    *,
    is_live: bool,
) -> Projection:
    return Projection(
        version_id=row.id,
        version_number=row.number,
        explained_share=tuple(reference.explained_share.round(DIGITS).tolist()),
        centroids=tuple(_rounded(centroid) for centroid in reference.centroids),
        points=points,
        occupancy=tuple(occupancy.tolist()),
        reference_occupancy=tuple(reference.occupancy.tolist()),
        is_live=is_live,
    )


def _thinned(n_points: int, limit: int) -> Ints:
    """Positions of at most `limit` points, evenly spread."""
    if n_points <= limit:
        return np.arange(n_points, dtype=np.int64)
    return np.linspace(0, n_points - 1, limit).astype(np.int64)


def _rounded(coordinates: Floats | Floats32) -> tuple[float, ...]:
    return tuple(coordinates.astype(np.float64).round(DIGITS).tolist())
