"""Requests at their nearest centroids, with their sessions: what drift is measured on."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eldr_runtime.array_types import Floats, Floats32, Ints
from eldr_runtime.errors import InvalidValue


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlacedTraffic:
    """Requests at their nearest centroids.

    Parameters
    ----------
    similarities
        float64 `(n_requests,)`, to the nearest centroid.
    clusters
        int64 `(n_requests,)`, the nearest centroid.
    sessions
        int64 `(n_requests,)`, sessions numbered from 0 without a gap.
    n_clusters
        Centroids there are.
    """

    similarities: Floats
    clusters: Ints
    sessions: Ints
    n_clusters: int

    def __len__(self) -> int:
        return len(self.similarities)

    @property
    def n_sessions(self) -> int:
        """Sessions the requests belong to."""
        return int(self.sessions.max()) + 1 if len(self.sessions) else 0

    def occupancy(self) -> Ints:
        """Return requests by cluster, int64 `(n_clusters,)`."""
        return np.bincount(self.clusters, minlength=self.n_clusters).astype(np.int64)


def place_traffic(
    signatures: Floats32, centroids: Floats32, sessions: Sequence[str] | None = None
) -> PlacedTraffic:
    """Place requests at their nearest centroids; zero signatures say nothing and are left out.

    Parameters
    ----------
    signatures
        float32 `(n_requests, n_features)`, unit norm or zero.
    centroids
        float32 `(n_centroids, n_features)`.
    sessions
        Session of each request. None takes each request as its own session, which makes bounds too narrow
        where the traffic has sessions.

    Examples
    --------
    >>> axes = np.eye(2, dtype=np.float32)
    >>> place_traffic(axes[[1, 0, 1]], axes).clusters.tolist()
    [1, 0, 1]
    """
    if signatures.ndim != 2 or centroids.ndim != 2 or signatures.shape[1] != centroids.shape[1]:
        value = (signatures.shape, centroids.shape)
        raise InvalidValue(field="signatures and centroids", value=value, limit="tables of equal width")
    if sessions is not None and len(sessions) != len(signatures):
        raise InvalidValue(field="sessions", value=len(sessions), limit=f"one a request, {len(signatures)}")
    similarities = signatures @ centroids.T
    if not np.isfinite(similarities).all():
        raise InvalidValue(field="signatures", value="not finite", limit="finite")
    says_something = signatures.any(axis=1)
    names = np.arange(len(signatures)) if sessions is None else np.array(sessions, dtype=str)
    _, numbers = np.unique(names[says_something], return_inverse=True)
    return PlacedTraffic(
        similarities=similarities.max(axis=1)[says_something].astype(np.float64),
        clusters=similarities.argmax(axis=1)[says_something].astype(np.int64),
        sessions=numbers.astype(np.int64),
        n_clusters=len(centroids),
    )
