"""Policies that look at load alone, or at nothing."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eldr_runtime.policies.choice import Choice, Reason, RoutingRequest, TieBreak
from eldr_runtime.worker_load import PoolView


def least_loaded(candidates: Sequence[int], in_flight: Sequence[int], rng: np.random.Generator | None) -> int:
    """Return the least loaded candidate; ties by seeded draw, or the first one without `rng`.

    Examples
    --------
    >>> least_loaded([0, 2], [3, 0, 1], rng=None)
    2
    """
    load = [in_flight[candidate] for candidate in candidates]
    least = min(load)
    if rng is None or load.count(least) == 1:
        return candidates[load.index(least)]
    ties = [candidate for candidate, each in zip(candidates, load, strict=True) if each == least]
    return ties[int(rng.integers(len(ties)))]


def shortest_queue_choice(pool: PoolView, rng: np.random.Generator, reason: Reason) -> Choice:
    """Choose the least loaded worker of the whole pool, ties by seeded draw."""
    everyone = range(len(pool))
    index = least_loaded(everyone, pool.in_flight.tolist(), rng)
    return Choice(index=index, band=tuple(everyone), reason=reason)


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
