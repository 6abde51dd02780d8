"""What a version is judged by: how far it cuts the union of active experts on requests it never saw.

Ours (the paper judges by rho, which does not decide). Requests are split in two halves; a version is fitted
on one, each request of the other goes to its nearest centroid, and the expected union of B distinct
requests of a cluster, one decode step each, is compared with that of B requests drawn from the whole half.

The mean over all batches of B distinct requests is computed exactly, not sampled: with `q = 1 - p`, an
expert stays unused with the mean, over subsets of size B, of the product of `q` (an elementary symmetric
mean). Batches drawn with repetition would be biased, since a request shares all experts with itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy import stats

from eldr_runtime.array_types import Floats, Floats32, Ints
from eldr_runtime.centroid_version import CentroidVersion
from eldr_runtime.errors import InvalidValue, ModelMismatch
from eldr_runtime.expert_trace import ExpertTrace
from eldr_runtime.signature import usage_of

MAX_REQUESTS = 8_000
CONFIDENCE = 0.95
FEATURES_AT_ONCE = 512  # the running means of a block stay in the cache

Fit: TypeAlias = Callable[[ExpertTrace, int], CentroidVersion]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterChange:
    """Change of the expected union in one cluster, %; None where it holds fewer requests than a batch."""

    cluster: int
    n_requests: int
    percent: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnionChange:
    """Change of the expected union within groups against the whole, in percent; below 0 is less to load.

    `percent` is None where no group holds a batch; groups weigh by size; `covered_share` is the share of
    requests in groups that hold one.
    """

    batch_size: int
    percent: float | None
    covered_share: float
    by_cluster: tuple[ClusterChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutUnion:
    """Change of the expected union against mixed batches, in percent; below 0 is less to load.

    Attributes
    ----------
    batch_size
        Distinct requests in a batch, B.
    mean_percent
        Mean over the splits.
    seeds
        The change on each split, in the order of the split seeds.
    interval
        95 % interval over splits: mean +- t * s * sqrt(1 / n + 1), with s the deviation between splits. The
        1 is the ratio of held-out to fitted requests (the corrected resampled t interval of Nadeau and
        Bengio, 2003): splits share requests, so that dividing s by sqrt(n) alone would claim too much. It
        covers what another sample of requests and another fit would give; not drift of the traffic.
    covered_share
        Share of held-out requests in clusters of at least B requests, mean over splits; the others are
        dropped.
    by_cluster
        The clusters of the first split.
    """

    batch_size: int
    mean_percent: float
    seeds: tuple[float, ...]
    interval: tuple[float, float]
    covered_share: float
    by_cluster: tuple[ClusterChange, ...]


def expected_unions(p: Floats32 | Floats, batch_sizes: Sequence[int]) -> tuple[float | None, ...]:
    """Mean expected union over all batches of distinct requests, for each batch size.

    Parameters
    ----------
    p : ndarray of shape (n_requests, n_layers, n_experts), float32 or float64
        Probability that a decode step of the request uses the expert.
    batch_sizes : sequence of int
        At least 1 each.

    Returns
    -------
    tuple of float
        Active experts, mean over layers; None where there are fewer requests than the batch size.

    Examples
    --------
    >>> expected_unions(np.array([[[1.0, 0.0]], [[1.0, 0.0]], [[0.0, 1.0]]]), [1, 3, 4])
    (1.0, 2.0, None)
    """
    n_requests, n_layers, n_experts = p.shape
    for size in batch_sizes:
        if not _is_integer(size) or size < 1:
            raise InvalidValue(field="batch_size", value=size, limit="an integer of at least 1")
    sizes = [size for size in batch_sizes if size <= n_requests]
    if not sizes:
        return (None,) * len(batch_sizes)
    unused = 1.0 - p.reshape(n_requests, -1).astype(np.float64)
    totals = np.zeros(len(sizes))
    for start in range(0, unused.shape[1], FEATURES_AT_ONCE):
        block = np.ascontiguousarray(unused[:, start : start + FEATURES_AT_ONCE])
        totals += _subset_products(block, max(sizes))[sizes].sum(axis=1)
    unions = dict(zip(sizes, n_experts - totals / n_layers, strict=True))
    return tuple(float(unions[size]) if size in unions else None for size in batch_sizes)


def _is_integer(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _subset_products(unused: Floats, largest: int) -> Floats:
    """Mean product over subsets of 0, 1, ... `largest` rows, for each column.

    Adding row n to the rows before it: a subset of size j holds it with probability j / n, so
    `mean_n[j] = (1 - j / n) * mean_{n-1}[j] + j / n * row * mean_{n-1}[j - 1]`.
    """
    means = np.zeros((largest + 1, unused.shape[1]))
    means[0] = 1.0
    sizes = np.arange(1.0, largest + 1)[:, None]
    for n, row in enumerate(unused, start=1):
        top = min(n, largest)
        share = sizes[:top] / n
        grown = row * means[:top]
        grown *= share
        means[1 : top + 1] *= 1.0 - share
        means[1 : top + 1] += grown
    return means


def union_changes(p: Floats32, groups: Ints, batch_sizes: Sequence[int]) -> tuple[UnionChange, ...]:
    """Compare batches within groups with batches of the whole, for each batch size.

    Parameters
    ----------
    p : ndarray of shape (n_requests, n_layers, n_experts), float32
        Probability that a decode step of the request uses the expert.
    groups : ndarray of shape (n_requests,), int64
        Group of each request, from 0.
    batch_sizes : sequence of int

    Examples
    --------
    >>> p = np.array([[[1.0, 0.0]], [[1.0, 0.0]], [[0.0, 1.0]], [[0.0, 1.0]]], dtype=np.float32)
    >>> f"{union_changes(p, np.array([0, 0, 1, 1]), [2])[0].percent:.1f}"
    '-40.0'
    """
    mixed = expected_unions(p, batch_sizes)
    sizes = np.bincount(groups)
    within = [expected_unions(p[groups == group], batch_sizes) for group in range(len(sizes))]
    return tuple(
        _change(batch_size, mixed[i], [unions[i] for unions in within], sizes)
        for i, batch_size in enumerate(batch_sizes)
    )


def _change(batch_size: int, mixed: float | None, within: Sequence[float | None], sizes: Ints) -> UnionChange:
    percents = [None if u is None or mixed is None else 100.0 * (u / mixed - 1.0) for u in within]
    covered = [(size, percent) for size, percent in zip(sizes, percents, strict=True) if percent is not None]
    n_covered = sum(int(size) for size, _ in covered)
    return UnionChange(
        batch_size=batch_size,
        percent=float(sum(size * percent for size, percent in covered)) / n_covered if covered else None,
        covered_share=n_covered / int(sizes.sum()),
        by_cluster=tuple(
            ClusterChange(cluster=cluster, n_requests=int(size), percent=percent)
            for cluster, (size, percent) in enumerate(zip(sizes, percents, strict=True))
        ),
    )


def split_half(labels: Sequence[str] | None, n_requests: int, seed: int) -> tuple[Ints, Ints]:
    """Split requests in two halves, each label as evenly as its count allows.

    Returns
    -------
    train, held_out : ndarray of int64
        Sorted positions; their sizes differ by at most 1.
    """
    rng = np.random.default_rng(seed)
    shuffled = rng.permutation(n_requests)
    if labels is not None:
        _, codes = np.unique(np.asarray(labels), return_inverse=True)
        shuffled = shuffled[np.argsort(codes[shuffled], kind="stable")]
    offset = int(rng.integers(2))
    return np.sort(shuffled[offset::2]), np.sort(shuffled[1 - offset :: 2])


def nearest_centroids(version: CentroidVersion, trace: ExpertTrace) -> Ints:
    """Nearest centroid of each request, int64 `(n_requests,)`; the lowest index on ties."""
    labels: Ints = np.argmax(centroid_similarities(version, trace), axis=1)
    return labels


def centroid_similarities(version: CentroidVersion, trace: ExpertTrace) -> Floats32:
    """Cosine of each request with each centroid, float32 `(n_requests, n_centroids)`."""
    if trace.shape != version.shape:
        raise ModelMismatch(f"the version is for {version.shape}; the trace is of {trace.shape}")
    similarities: Floats32 = (
        version.transform.apply(usage_of(version.transform.name, trace)) @ version.centroids.T
    )
    return similarities


def judge(
    trace: ExpertTrace,
    fit: Fit,
    *,
    batch_sizes: Sequence[int] = (16,),
    split_seeds: Sequence[int] = tuple(range(20)),
    on_split: Callable[[int, int], None] | None = None,
) -> tuple[HeldOutUnion, ...]:
    """Fit on one half and judge on the other, for each split seed.

    Parameters
    ----------
    trace : ExpertTrace
        With decode counts. Of more than 8,000 requests, each split draws 8,000.
    fit : callable
        Makes a version from the fitted half and the split seed.
    batch_sizes : sequence of int
        Sizes for which some split has no cluster of that many requests are left out of the result.
    split_seeds : sequence of int
        At least 2.
    on_split : callable, optional
        Called with the splits done so far and their total; what it raises stops the judging.
    """
    splits = []
    _check_splits(split_seeds)
    for seed in split_seeds:
        train, held_out = _halves(trace, seed)
        groups = nearest_centroids(fit(train, seed), held_out)
        splits.append(union_changes(held_out.decode_share, groups, batch_sizes))
        if on_split is not None:
            on_split(len(splits), len(split_seeds))
    by_size = zip(*splits, strict=True)
    return tuple(summary for changes in by_size if (summary := _summary(changes)) is not None)


def random_labels_control(
    trace: ExpertTrace, *, n_clusters: int, batch_size: int = 16, split_seeds: Sequence[int]
) -> HeldOutUnion | None:
    """Judge equal groups drawn at random on the same held-out halves: 0 but for chance.

    None where the groups hold fewer requests than a batch.
    """
    _check_splits(split_seeds)
    if n_clusters < 1:
        raise InvalidValue(field="n_clusters", value=n_clusters, limit="at least 1")
    changes = []
    for seed in split_seeds:
        _, held_out = _halves(trace, seed)
        groups = np.random.default_rng([seed, n_clusters]).permutation(len(held_out)) % n_clusters
        changes.append(union_changes(held_out.decode_share, groups, [batch_size])[0])
    return _summary(changes)


def _halves(trace: ExpertTrace, seed: int) -> tuple[ExpertTrace, ExpertTrace]:
    if len(trace) > MAX_REQUESTS:
        drawn = np.random.default_rng([seed, MAX_REQUESTS]).choice(len(trace), MAX_REQUESTS, replace=False)
        trace = trace.select(np.sort(drawn))
    train, held_out = split_half(trace.labels, len(trace), seed)
    return trace.select(train), trace.select(held_out)


def _check_splits(split_seeds: Sequence[int]) -> None:
    if len(split_seeds) < 2:
        raise InvalidValue(field="split_seeds", value=tuple(split_seeds), limit="at least 2, for an interval")


def _summary(changes: Sequence[UnionChange]) -> HeldOutUnion | None:
    percents = [change.percent for change in changes if change.percent is not None]
    if len(percents) < len(changes):
        return None
    n = len(percents)
    mean = float(np.mean(percents))
    reach = float(
        stats.t.ppf(0.5 + CONFIDENCE / 2, n - 1) * np.std(percents, ddof=1) * np.sqrt(1.0 / n + 1.0)
    )
    return HeldOutUnion(
        batch_size=changes[0].batch_size,
        mean_percent=mean,
        seeds=tuple(percents),
        interval=(mean - reach, mean + reach),
        covered_share=float(np.mean([change.covered_share for change in changes])),
        by_cluster=changes[0].by_cluster,
    )
