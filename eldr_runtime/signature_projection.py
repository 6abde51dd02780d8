"""Signatures in two or three dimensions, for people to look at; nothing decides by it."""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import orthogonal_procrustes
from scipy.optimize import linear_sum_assignment
from scipy.spatial import procrustes
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score

from eldr_runtime.array_types import Floats, Floats32, Ints
from eldr_runtime.errors import InvalidValue

MAX_POINTS = 3_000


# Identity, not equality: comparing arrays with == has no truth value.
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SignatureProjection:
    """Principal components of signatures, with requests and centroids placed on them.

    Attributes
    ----------
    mean
        float64 `(n_features,)`.
    components
        float64 `(n_components, n_features)`, orthonormal rows.
    explained_share
        float64 `(n_components,)`: share of the variance along each.
    rows
        int64 `(n_points,)`: which requests the points are, ascending.
    points, centroid_points
        float64 `(n_points, n_components)` and `(n_centroids, n_components)`.
    """

    mean: Floats
    components: Floats
    explained_share: Floats
    rows: Ints
    points: Floats
    centroid_points: Floats

    def place(self, signatures: Floats32) -> Floats:
        """Place further signatures, float32 `(n, n_features)`, as float64 `(n, n_components)`."""
        return (signatures - self.mean) @ self.components.T


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Alignment:
    """One projection moved onto another by rotation, reflection and shift; distances stay.

    `points` and `centroid_points` are float64 as in the projection; `disparity` is 0 where both show the same
    figure and nears 1 where they have nothing in common (after scaling, `scipy.spatial.procrustes`).
    """

    points: Floats
    centroid_points: Floats
    disparity: float


def project(
    signatures: Floats32, centroids: Floats32, n_components: int = 3, *, seed: int = 0
) -> SignatureProjection:
    """Fit principal components to signatures.

    Parameters
    ----------
    signatures : ndarray of shape (n_requests, n_features), float32
        Of more than 3,000 requests, 3,000 are drawn.
    centroids : ndarray of shape (n_centroids, n_features), float32
    n_components : int
        At most the number of requests and of features.
    seed : int
        Seeds the draw and the randomized decomposition.

    Examples
    --------
    >>> rows = np.array([[1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 1, 0]], dtype=np.float32)
    >>> projection = project(rows, rows[:2], n_components=1)
    >>> projection.explained_share.round(3).tolist()
    [1.0]
    """
    n_requests, n_features = signatures.shape
    largest = min(n_requests, n_features)
    if not 1 <= n_components <= largest:
        limit = f"from 1 to {largest}, the lesser of requests and features"
        raise InvalidValue(field="n_components", value=n_components, limit=limit)
    rows = np.arange(n_requests)
    if n_requests > MAX_POINTS:
        rows = np.sort(np.random.default_rng(seed).choice(n_requests, MAX_POINTS, replace=False))
    drawn = signatures[rows].astype(np.float64)
    solver = "full" if largest <= 64 else "randomized"
    # Equal rows have no variance to share out: 0 / 0, which nan_to_num below makes a share of 0.
    with np.errstate(divide="ignore", invalid="ignore"):
        fitted = PCA(n_components, svd_solver=solver, random_state=seed).fit(drawn)
    return SignatureProjection(
        mean=fitted.mean_,
        components=fitted.components_,
        explained_share=np.nan_to_num(fitted.explained_variance_ratio_),
        rows=rows,
        points=fitted.transform(drawn),
        centroid_points=fitted.transform(centroids.astype(np.float64)),
    )


def align(reference: SignatureProjection, other: SignatureProjection) -> Alignment:
    """Turn `other` onto `reference`, so that two versions can be looked at side by side.

    Both must show the same requests on as many components; the sign and order of components, which mean
    nothing, then no longer differ.
    """
    if reference.points.shape != other.points.shape or not np.array_equal(reference.rows, other.rows):
        limit = f"the {len(reference.rows)} requests of the reference on as many components"
        raise InvalidValue(field="points", value=f"of shape {other.points.shape}", limit=limit)
    here, there = reference.points.mean(axis=0), other.points.mean(axis=0)
    rotation, _ = orthogonal_procrustes(other.points - there, reference.points - here)
    _, _, disparity = procrustes(reference.points, other.points)
    return Alignment(
        points=(other.points - there) @ rotation + here,
        centroid_points=(other.centroid_points - there) @ rotation + here,
        disparity=float(disparity),
    )


def match_centroids(reference: Floats32, other: Floats32) -> Ints:
    """Pair the centroids of two fits so that their cosines sum to the most.

    Parameters
    ----------
    reference, other : ndarray of shape (n_centroids, n_features), float32
        Unit rows over the same features.

    Returns
    -------
    ndarray of shape (n_centroids,), int64
        Row of `other` for each row of `reference`.

    Examples
    --------
    >>> match_centroids(np.eye(3, dtype=np.float32), np.eye(3, dtype=np.float32)[[2, 0, 1]]).tolist()
    [1, 2, 0]
    """
    if reference.shape != other.shape:
        limit = f"{reference.shape}, as many centroids over the same features"
        raise InvalidValue(field="shape of other", value=other.shape, limit=limit)
    _, columns = linear_sum_assignment(-(reference @ other.T).astype(np.float64))
    return columns.astype(np.int64)


def label_agreement(labels: Ints, other: Ints) -> float:
    """Compute the adjusted Rand index of two clusterings: 1 is the same but for numbering, 0 is chance."""
    return float(adjusted_rand_score(labels, other))
