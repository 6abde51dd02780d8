"""Is a version better than the one that is active? Their unions of active experts, on the same requests.

Ours: the gate of promotion. Requests are placed as a router with a load cap places them, see decision 5.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eldr_runtime.array_types import Floats32, Ints
from eldr_runtime.balanced_kmeans import assign_balanced
from eldr_runtime.centroid_version import CentroidVersion
from eldr_runtime.errors import InvalidTrace, InvalidValue
from eldr_runtime.expert_trace import ExpertTrace
from eldr_runtime.held_out_union import CONFIDENCE, centroid_similarities, split_half, union_changes
from eldr_runtime.policies.choice import DEFAULT_LOAD_CAP


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedComparison:
    """Union change of a candidate version less that of another, in points; below 0 the candidate is better.

    Attributes
    ----------
    mean_points
        On all requests.
    interval
        95 % interval from the paired half-samples, centred on `mean_points`. The spread of a half-sample
        about the whole is that of the whole about the truth (a jackknife that deletes half).
    n_batches
        Paired half-samples; each stands for all batches of its requests, whose mean is exact.
    """

    batch_size: int
    mean_points: float
    interval: tuple[float, float]
    n_batches: int

    def is_not_worse(self, limit_points: float = 0.5) -> bool:
        """Whether the candidate is worse by less than `limit_points` at 95 %."""
        return self.interval[1] <= limit_points


def compare_versions(
    candidate: CentroidVersion,
    other: CentroidVersion,
    trace: ExpertTrace,
    *,
    batch_size: int = 16,
    n_batches: int = 100,
    seed: int = 0,
) -> PairedComparison:
    """Compare two versions on the same requests, which neither of them was fitted on.

    Each places them under the load cap of `eldr_capped`. By the nearest centroid alone a version that an
    unseen topic crowds onto one worker would look best: 30 % of the traffic alike, on one of 8 workers.

    Parameters
    ----------
    candidate, other : CentroidVersion
        Of the model of the trace.
    trace : ExpertTrace
        With decode counts; enough requests that a random half leaves both versions a cluster of a batch.
    batch_size : int
    n_batches : int
        Paired half-samples, at least 2.
    seed : int
        Seeds the half-samples, by label where there are labels.
    """
    if n_batches < 2:
        raise InvalidValue(field="n_batches", value=n_batches, limit="at least 2")
    p = trace.decode_share
    sides = (centroids_under_cap(candidate, trace), centroids_under_cap(other, trace))
    mean_points = _difference(p, sides, batch_size)
    draws = np.empty(n_batches)
    for draw in range(n_batches):
        half = split_half(trace.labels, len(trace), seed + draw // 2)[draw % 2]
        draws[draw] = _difference(p[half], (sides[0][half], sides[1][half]), batch_size)
    low, high = np.quantile(draws - draws.mean(), [0.5 - CONFIDENCE / 2, 0.5 + CONFIDENCE / 2]) + mean_points
    return PairedComparison(
        batch_size=batch_size,
        mean_points=mean_points,
        interval=(float(low), float(high)),
        n_batches=n_batches,
    )


def pooled(comparisons: Sequence[PairedComparison]) -> PairedComparison:
    """Take comparisons on disjoint requests as one: the mean, and its interval as of independent ones.

    Raises
    ------
    InvalidValue
        None, or of different batch sizes.

    Examples
    --------
    >>> one = PairedComparison(batch_size=16, mean_points=1.0, interval=(-2.0, 4.0), n_batches=20)
    >>> other = PairedComparison(batch_size=16, mean_points=2.0, interval=(-2.0, 6.0), n_batches=20)
    >>> both = pooled([one, other])
    >>> both.mean_points, both.interval, both.n_batches
    (1.5, (-1.0, 4.0), 40)
    """
    sizes = {each.batch_size for each in comparisons}
    if len(sizes) != 1:
        raise InvalidValue(field="batch_size", value=sorted(sizes), limit="one, of at least one comparison")
    mean_points = sum(each.mean_points for each in comparisons) / len(comparisons)
    below = math.hypot(*(each.mean_points - each.interval[0] for each in comparisons)) / len(comparisons)
    above = math.hypot(*(each.interval[1] - each.mean_points for each in comparisons)) / len(comparisons)
    return PairedComparison(
        batch_size=sizes.pop(),
        mean_points=mean_points,
        interval=(mean_points - below, mean_points + above),
        n_batches=sum(each.n_batches for each in comparisons),
    )


def centroids_under_cap(
    version: CentroidVersion, trace: ExpertTrace, load_cap: float = DEFAULT_LOAD_CAP
) -> Ints:
    """Give each request to a centroid, none more than `load_cap` times its even share, at the least distance.

    So a router with that load cap places them: what crowds round one centroid has to go on to the next.

    Returns
    -------
    ndarray of shape (n_requests,), int64
    """
    similarities = centroid_similarities(version, trace)
    capacity = math.ceil(load_cap * len(trace) / len(version.centroids))
    return assign_balanced(1.0 - similarities, capacity)


def _difference(p: Floats32, sides: tuple[Ints, Ints], batch_size: int) -> float:
    if np.array_equal(*sides):
        return 0.0
    percents = [union_changes(p, groups, [batch_size])[0].percent for groups in sides]
    first, second = percents
    if first is None or second is None:
        limit = f"enough that each version has a cluster of {batch_size} in half of them"
        raise InvalidTrace(field="n_requests", value=len(p), limit=limit)
    return first - second
