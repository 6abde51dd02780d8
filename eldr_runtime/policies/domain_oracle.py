"""The oracle `domain`: knows each request's true label and gives every label its own workers."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import floor, isfinite

import numpy as np

from eldr_runtime.errors import InvalidConfig
from eldr_runtime.policies.choice import Choice, Reason, RoutingRequest, TieBreak
from eldr_runtime.policies.load_balancing import least_loaded, shortest_queue_choice
from eldr_runtime.worker_load import PoolView

# A share such as 29/100 of 100 workers is 28.999999999999996 in binary.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelPools:
    """Positions in the pool by label; labels in `small_labels` share `shared`, which may be empty."""

    own: Mapping[str, tuple[int, ...]]
    small_labels: frozenset[str]
    shared: tuple[int, ...]


def largest_remainder(shares: tuple[float, ...], n_seats: int) -> tuple[int, ...]:
    """Share out seats in proportion; ties of remainders go to the larger share, then the earlier one.

    Examples
    --------
    >>> largest_remainder((0.5, 0.3, 0.2), 4)
    (2, 1, 1)
    """
    total = sum(shares)
    quotas = [share / total * n_seats for share in shares]
    seats = [floor(quota + _ROUNDING) for quota in quotas]
    order = sorted(
        range(len(shares)), key=lambda i: (-round(quotas[i] - seats[i], 9), -round(quotas[i], 9), i)
    )
    for i in order[: n_seats - sum(seats)]:
        seats[i] += 1
    return tuple(seats)


@lru_cache(maxsize=64)
def share_out(label_shares: tuple[tuple[str, float], ...], worker_ids: tuple[str, ...]) -> LabelPools:
    """Give each label its workers, by label and worker id, so that the pool's order does not matter."""
    n_workers = len(worker_ids)
    total = sum(share for _, share in label_shares)
    large = [(label, share) for label, share in label_shares if share / total * n_workers >= 1 - _ROUNDING]
    small = [(label, share) for label, share in label_shares if share / total * n_workers < 1 - _ROUNDING]
    entries = [share for _, share in large]
    if small:
        entries.append(sum(share for _, share in small))
    seats = largest_remainder(tuple(entries), n_workers)
    by_id = sorted(range(n_workers), key=worker_ids.__getitem__)
    starts = [sum(seats[:i]) for i in range(len(seats))]
    pools = [tuple(sorted(by_id[start : start + n])) for start, n in zip(starts, seats, strict=True)]
    return LabelPools(
        own={label: pool for (label, _), pool in zip(large, pools, strict=False)},
        small_labels=frozenset(label for label, _ in small),
        shared=pools[-1] if small else (),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainOracle:
    """Join-shortest-queue among the workers of the request's label.

    Parameters
    ----------
    label_shares
        Label and share of the calibration mix, sorted by label.
    """

    label_shares: tuple[tuple[str, float], ...]
    tie_break: TieBreak = TieBreak.SEEDED_DRAW

    @classmethod
    def from_mix(cls, label_shares: Mapping[str, float]) -> "DomainOracle":
        """Check a mix and make the oracle; shares are relative, they need not sum to 1."""
        for label, share in label_shares.items():
            if not (isfinite(share) and share >= 0):
                limit = "a finite number, 0 or more"
                raise InvalidConfig(field=f"label_shares[{label!r}]", value=share, limit=limit)
        if not sum(label_shares.values()) > 0:
            raise InvalidConfig(
                field="label_shares", value=dict(label_shares), limit="some label with a share"
            )
        return cls(label_shares=tuple(sorted(label_shares.items())))

    def choose(self, request: RoutingRequest, pool: PoolView, rng: np.random.Generator) -> Choice:
        """Choose the least loaded worker of the label's pool; an empty shared pool stands for all workers."""
        pools = share_out(self.label_shares, pool.worker_ids)
        workers, reason = _pool_of(request.label, pools)
        if not workers:
            return shortest_queue_choice(pool, rng, reason)
        index = least_loaded(workers, pool.in_flight.tolist(), rng)
        return Choice(index=index, band=workers, reason=reason)


def _pool_of(label: str | None, pools: LabelPools) -> tuple[tuple[int, ...], Reason]:
    if label is not None and label in pools.own:
        return pools.own[label], Reason.LABEL_POOL
    if label is not None and label in pools.small_labels:
        return pools.shared, Reason.SHARED_POOL
    return pools.shared, Reason.UNKNOWN_LABEL
