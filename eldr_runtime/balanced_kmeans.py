"""Spherical K-means whose clusters have a capacity, and the uncapped control.

The published fit (arXiv 2607.00466, Hungarian-balanced K-means) repeats each centroid's column `ceil(N / K)`
times and solves a linear assignment problem, which grows as N squared. Above `exact_limit` rows the same
transportation problem is solved over K sinks instead: `eldr_runtime.balanced_assignment`.
"""

import itertools
from typing import NamedTuple, Self

import numpy as np

from eldr_runtime.array_types import Bools, Floats, Floats32, Ints
from eldr_runtime.balanced_assignment import assign_by_columns, assign_by_transfers
from eldr_runtime.errors import InvalidValue

NORM_TOLERANCE = 1e-3
SAME_POINT_SQUARED = 1e-6  # float32 rounding of 2 - 2 x.c for x equal to c
START_ROWS = 2_000  # starts are compared on so many rows at most


class _Settled(NamedTuple):
    """Where one start has come to rest; `cost` is the sum of `1 - x.c`."""

    centroids: Floats32
    labels: Ints
    n_iterations: int
    cost: float


class BalancedSphericalKMeans:
    """K-means on unit vectors by cosine, with at most `ceil(N / K)` rows a cluster.

    k-means++ start; assignment at least total `1 - x.c` under the capacity; update by mean and L2 norm, an
    empty cluster keeping its centroid; stops when the centroids stop moving (arXiv 2607.00466).

    Parameters
    ----------
    n_clusters : int
        K, at least 1.
    balanced : bool
        False is the published control: every row goes to its nearest centroid, whatever the sizes.
    seed : int
        Seeds the k-means++ starts, the only random part.
    n_starts : int
        1 is the published fit. Of more the one that comes to rest at the least cost is kept; the first is
        the published one. Above 2,000 rows they are compared on 2,000 of them, and all rows go on from the
        best.
    max_iterations : int
        Assignments of a start at most, at least 1.
    exact_limit : int
        Rows up to which the replicated columns are used; above it the K-sink solution, whose total cost is
        the same up to rounding.

    Attributes
    ----------
    centroids_ : ndarray of shape (n_clusters, n_features), float32
        Unit rows.
    labels_ : ndarray of shape (n_requests,), int64
    n_iterations_ : int
    cost_ : float
        Sum of `1 - x.c` over the rows, each with the centroid of its label.

    Examples
    --------
    >>> rows = np.array([[1, 0], [1, 0], [1, 0], [0, 1]], dtype=np.float32)
    >>> np.bincount(BalancedSphericalKMeans(2).fit(rows).labels_).tolist()
    [2, 2]
    """

    centroids_: Floats32
    labels_: Ints
    n_iterations_: int
    cost_: float

    def __init__(
        self,
        n_clusters: int,
        *,
        balanced: bool = True,
        seed: int = 1,
        n_starts: int = 1,
        max_iterations: int = 50,
        exact_limit: int = 2000,
    ) -> None:
        self.n_clusters = n_clusters
        self.balanced = balanced
        self.seed = seed
        self.n_starts = n_starts
        self.max_iterations = max_iterations
        self.exact_limit = exact_limit

    def fit(self, signatures: Floats32) -> Self:
        """Cluster the rows.

        Parameters
        ----------
        signatures : ndarray of shape (n_requests, n_features), float32
            Each row of unit norm or zero.
        """
        for field in ("n_clusters", "n_starts", "max_iterations"):
            _check_positive(field, getattr(self, field))
        rows = _checked_rows(signatures, self.n_clusters)
        rng = np.random.default_rng(self.seed)
        some = rows if self.n_starts == 1 else _some_rows(rows, max(START_ROWS, self.n_clusters), rng)
        starts = (_spread_start(some, self.n_clusters, rng) for _ in range(self.n_starts))
        settled = min((self._settle(some, start) for start in starts), key=lambda each: each.cost)
        if some is not rows:
            settled = self._settle(rows, settled.centroids)
        self.centroids_, self.labels_, self.n_iterations_, self.cost_ = settled
        return self

    def predict(self, signatures: Floats32) -> Ints:
        """Nearest centroid of each row, without a capacity; the lowest index on ties.

        Parameters
        ----------
        signatures : ndarray of shape (n_requests, n_features), float32

        Returns
        -------
        ndarray of shape (n_requests,), int64
        """
        labels: Ints = np.argmax(signatures @ self.centroids_.T, axis=1)
        return labels

    def _settle(self, rows: Floats32, centroids: Floats32) -> _Settled:
        """Assign and update in turns until the centroids stop moving."""
        prices: Floats | None = None
        for iteration in itertools.count(1):
            labels, prices = self._assign(1.0 - rows @ centroids.T, prices)
            previous, centroids = centroids, _mean_directions(rows, labels, centroids)
            if iteration == self.max_iterations or np.array_equal(previous, centroids):
                break
        own = np.take_along_axis(rows @ centroids.T, labels[:, None], axis=1)
        return _Settled(centroids, labels, iteration, float((1.0 - own.astype(np.float64)).sum()))

    def _assign(self, cost: Floats32, start: Floats | None) -> tuple[Ints, Floats | None]:
        if not self.balanced:
            return np.argmin(cost, axis=1), None
        solve = assign_by_columns if len(cost) <= self.exact_limit else assign_by_transfers
        assignment = solve(cost, -(-len(cost) // self.n_clusters), start)
        return assignment.labels, assignment.prices


def assign_balanced(cost: Floats32 | Floats, capacity: int, *, exact_limit: int = 2000) -> Ints:
    """Assign each row to one column at the least total cost, no column more than `capacity` times.

    Parameters
    ----------
    cost : ndarray of shape (n_requests, n_centroids), float32 or float64
    capacity : int
        At least `ceil(n_requests / n_centroids)`.
    exact_limit : int
        Rows up to which `scipy.optimize.linear_sum_assignment` on repeated columns is used.

    Returns
    -------
    ndarray of shape (n_requests,), int64
        Column of each row.

    Examples
    --------
    >>> assign_balanced(np.array([[0.0, 1.0], [0.1, 0.3], [0.2, 0.9], [0.0, 0.1]]), 2).tolist()
    [0, 1, 0, 1]
    """
    if cost.ndim != 2 or not cost.size:
        raise InvalidValue(field="cost shape", value=cost.shape, limit="(n_requests, n_centroids), not empty")
    n_rows, n_columns = cost.shape
    if capacity * n_columns < n_rows:
        limit = f"at least {-(-n_rows // n_columns)} for {n_rows} rows and {n_columns} columns"
        raise InvalidValue(field="capacity", value=capacity, limit=limit)
    if not np.isfinite(cost).all():
        raise InvalidValue(field="cost", value="not finite", limit="finite numbers")
    solve = assign_by_columns if n_rows <= exact_limit else assign_by_transfers
    return solve(cost, capacity).labels


def _check_positive(field: str, value: int) -> None:
    if value < 1:
        raise InvalidValue(field=field, value=value, limit="an integer of at least 1")


def _checked_rows(signatures: Floats32, n_clusters: int) -> Floats32:
    if signatures.ndim != 2 or signatures.shape[1] == 0:
        raise InvalidValue(
            field="signatures", value=f"of shape {signatures.shape}", limit="(n_requests, n_features)"
        )
    rows = np.ascontiguousarray(signatures, dtype=np.float32)
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    wrong = np.flatnonzero(~((np.abs(norms - 1.0) <= NORM_TOLERANCE) | (norms == 0.0)))
    if len(wrong):
        raise InvalidValue(
            field=f"signatures[{wrong[0]}]", value=f"of norm {norms[wrong[0]]}", limit="of norm 1, or zero"
        )
    n_usable = int(np.count_nonzero(norms))
    if n_usable < n_clusters:
        raise InvalidValue(
            field="n_requests",
            value=n_usable,
            limit=f"at least the {n_clusters} clusters, counting requests whose signature is not zero",
        )
    return rows


def _some_rows(rows: Floats32, most: int, rng: np.random.Generator) -> Floats32:
    """Draw so many rows at most, none of them zero; `rows` itself where there are no more."""
    if len(rows) <= most:
        return rows
    usable = np.flatnonzero(np.einsum("ij,ij->i", rows, rows) > 0.0)
    drawn: Floats32 = rows[np.sort(rng.choice(usable, min(most, len(usable)), replace=False))]
    return drawn


def _spread_start(rows: Floats32, n_clusters: int, rng: np.random.Generator) -> Floats32:
    """K-means++: each next centroid drawn by squared distance; zero rows are never drawn."""
    is_usable = np.einsum("ij,ij->i", rows, rows) > 0.0
    chosen = [int(rng.choice(np.flatnonzero(is_usable)))]
    nearest = np.where(is_usable, 4.0, 0.0)
    while len(chosen) < n_clusters:
        last = rows[chosen[-1]]
        nearest = np.minimum(nearest, 2.0 - 2.0 * (rows @ last).astype(np.float64))
        nearest[nearest < SAME_POINT_SQUARED] = 0.0
        weights = nearest if nearest.any() else _not_yet(is_usable, chosen)
        chosen.append(int(rng.choice(len(rows), p=weights / weights.sum())))
    return rows[chosen]


def _not_yet(is_usable: Bools, chosen: list[int]) -> Floats:
    weights = is_usable.astype(np.float64)
    weights[chosen] = 0.0
    return weights


def _mean_directions(rows: Floats32, labels: Ints, previous: Floats32) -> Floats32:
    members = (labels == np.arange(len(previous))[:, None]).astype(np.float32)
    sums = members @ rows
    norms = np.linalg.norm(sums, axis=1, keepdims=True)
    keeps = norms[:, 0] <= 1e-9
    sums[keeps] = previous[keeps]
    norms[keeps] = 1.0
    directions: Floats32 = sums / norms
    return directions
