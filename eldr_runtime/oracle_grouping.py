"""How far a static grouping could cut the union if the decode use of every request were known beforehand.

Ours, and a heuristic: equal-size groups by repeated Hungarian assignment, improved by random swaps. Neither
the optimum, nor within reach of a router, which sees a request before it decodes; it is a bar to measure by.

While searching, the chance that a batch of a group leaves an expert unused is taken as the B-th power of the
group's mean `1 - p`, which is cheap to change by one request. The figures reported for a grouping are exact.
"""

import numpy as np

from eldr_runtime.array_types import Floats, Floats32, Ints
from eldr_runtime.balanced_kmeans import BalancedSphericalKMeans, assign_balanced

N_SWAP_TRIALS = 4_000
N_ASSIGNMENTS = 10


def oracle_groups(
    p: Floats32, n_groups: int, batch_size: int, *, seed: int, n_swap_trials: int = N_SWAP_TRIALS
) -> Ints:
    """Group requests by their true decode use so that batches of a group load few experts.

    Parameters
    ----------
    p : ndarray of shape (n_requests, n_layers, n_experts), float32
        Probability that a decode step of the request uses the expert.
    n_groups : int
        At most n_requests; group sizes are at most `ceil(n_requests / n_groups)`.
    batch_size : int
    seed : int
    n_swap_trials : int

    Returns
    -------
    ndarray of shape (n_requests,), int64

    Examples
    --------
    >>> p = np.array([[[1.0, 0.0]], [[0.0, 1.0]], [[1.0, 0.0]], [[0.0, 1.0]]], dtype=np.float32)
    >>> groups = oracle_groups(p, 2, 2, seed=0)
    >>> bool(groups[0] == groups[2] != groups[1] == groups[3])
    True
    """
    flat = p.reshape(len(p), -1)
    norms = np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-9)
    groups = BalancedSphericalKMeans(n_groups, seed=seed).fit(flat / norms).labels_
    unused = 1.0 - flat
    groups = _reassign(unused, groups, n_groups, batch_size)
    return _swap(unused.astype(np.float64), groups, n_groups, batch_size, n_swap_trials, seed)


def _means(unused: Floats32, groups: Ints, n_groups: int) -> Floats32:
    members = (groups == np.arange(n_groups)[:, None]).astype(np.float32)
    means: Floats32 = members @ unused / np.maximum(members.sum(axis=1, keepdims=True), 1.0)
    return means


def _saved(means: Floats32 | Floats, sizes: Ints, batch_size: int) -> float:
    """Experts left unused, summed over requests: what the grouping is to make large."""
    return float(sizes @ (means**batch_size).sum(axis=1, dtype=np.float64))


def _reassign(unused: Floats32, groups: Ints, n_groups: int, batch_size: int) -> Ints:
    """Hungarian assignment to the groups as they are, as long as that saves more."""
    capacity = -(-len(unused) // n_groups)
    means = _means(unused, groups, n_groups)
    best = _saved(means, np.bincount(groups, minlength=n_groups), batch_size)
    for _ in range(N_ASSIGNMENTS):
        moved = assign_balanced(-(unused @ (means ** (batch_size - 1)).T), capacity)
        means = _means(unused, moved, n_groups)
        saved = _saved(means, np.bincount(moved, minlength=n_groups), batch_size)
        if saved <= best:
            break
        best, groups = saved, moved
    return groups


def _swap(unused: Floats, groups: Ints, n_groups: int, batch_size: int, n_trials: int, seed: int) -> Ints:
    """Exchange two requests of different groups where that saves more."""
    rng = np.random.default_rng(seed)
    groups = groups.copy()
    sizes = np.maximum(np.bincount(groups, minlength=n_groups), 1)
    sums = np.stack([unused[groups == group].sum(axis=0) for group in range(n_groups)])
    saved = np.array([sizes[g] * ((sums[g] / sizes[g]) ** batch_size).sum() for g in range(n_groups)])
    for one, other in rng.integers(len(groups), size=(n_trials, 2)):
        a, b = groups[one], groups[other]
        if a == b:
            continue
        change = unused[other] - unused[one]
        pair = np.stack([sums[a] + change, sums[b] - change]) / sizes[[a, b], None]
        after = sizes[[a, b]] * (np.maximum(pair, 0.0) ** batch_size).sum(axis=1)
        if after.sum() > saved[a] + saved[b] + 1e-9:
            groups[one], groups[other] = b, a
            sums[a] += change
            sums[b] -= change
            saved[a], saved[b] = after
    return groups
