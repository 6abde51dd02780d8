"""Policies that look at load alone, or at nothing."""

from dataclasses import dataclass

import numpy as np

from eldr_runtime.array_types import Ints
from eldr_runtime.policies.choice import Choice, Reason, RoutingRequest, TieBreak
from eldr_runtime.worker_load import PoolView


def least_loaded(candidates: Ints, in_flight: Ints, rng: np.random.Generator | None) -> int:
    """Return the least loaded candidate; ties by seeded draw, or lowest index without `rng`.

    Parameters
    ----------
    candidates
        int64 `(n_candidates,)`, ascending indices into the pool.
    in_flight
        int64 `(n_workers,)`.
    """
    if candidates.size == 1:
        return int(candidates[0])
    load = in_flight[candidates]
    if rng is None:
        return int(candidates[load.argmin()])
    ties = (load == load[load.argmin()]).nonzero()[0]
    return int(candidates[ties[0] if ties.size == 1 else ties[rng.integers(ties.size)]])


def shortest_queue_choice(pool: PoolView, rng: np.random.Generator | None, reason: Reason) -> Choice:
    """Choose the least loaded worker of the whole pool."""
    everyone = np.arange(len(pool))
    return Choice(
        index=least_loaded(everyone, pool.in_flight, rng), band=tuple(range(len(pool))), reason=reason
    )


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """Workers take turns; the turn is the number of requests routed so far."""

    tie_break: TieBreak = TieBreak.POSITION

    def choose(self, request: RoutingRequest, pool: PoolView, rng: np.random.Generator) -> Choice:
        """Choose the worker whose turn it is."""
        index = pool.n_routed % len(pool)
        return Choice(index=index, band=(index,), reason=Reason.TURN)


@dataclass(frozen=True, slots=True)
class RandomWorker:
    """Any worker, uniformly."""

    tie_break: TieBreak = TieBreak.POSITION

    def choose(self, request: RoutingRequest, pool: PoolView, rng: np.random.Generator) -> Choice:
        """Draw a worker."""
        index = int(rng.integers(len(pool)))
        return Choice(index=index, band=tuple(range(len(pool))), reason=Reason.DRAW)


@dataclass(frozen=True, slots=True)
class JoinShortestQueue:
    """The worker with the fewest requests in flight, ties by seeded draw."""

    tie_break: TieBreak = TieBreak.SEEDED_DRAW

    def choose(self, request: RoutingRequest, pool: PoolView, rng: np.random.Generator) -> Choice:
        """Choose the least loaded worker."""
        return shortest_queue_choice(pool, rng, Reason.LEAST_LOADED)


@dataclass(frozen=True, slots=True)
class PowerOfTwoChoices:
    """The less loaded of two distinct workers drawn at random."""

    tie_break: TieBreak = TieBreak.POSITION

    def choose(self, request: RoutingRequest, pool: PoolView, rng: np.random.Generator) -> Choice:
        """Draw two workers and choose the less loaded one, the first drawn on a tie."""
        n_workers = len(pool)
        first = int(rng.integers(n_workers))
        if n_workers == 1:
            return Choice(index=first, band=(first,), reason=Reason.LESS_LOADED_OF_TWO)
        second = (first + 1 + int(rng.integers(n_workers - 1))) % n_workers
        index = second if pool.in_flight[second] < pool.in_flight[first] else first
        return Choice(
            index=index, band=(min(first, second), max(first, second)), reason=Reason.LESS_LOADED_OF_TWO
        )
