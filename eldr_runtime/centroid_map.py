"""Which centroids each decode worker carries: one pure function that every process computes alike.

For as many workers as centroids the map is a bijection, as published. With fewer workers a worker
carries several centroids; with more, a centroid has several workers. The map depends on the version and
on the set of workers, not on their order or on history. Scores are hashes and the best score is served
first, so that a change of workers moves little. No such function can move nothing but a lost worker's
centroids for every set of workers; naming the lost workers as `absent_workers` does.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from eldr_runtime.array_types import Floats32, Ints
from eldr_runtime.errors import InvalidConfig, InvalidValue

MAX_CENTROIDS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class CentroidMap:
    """Centroids by worker.

    Parameters
    ----------
    worker_ids
        Sorted, distinct.
    centroids_of
        For each worker the ascending indices of its centroids, at least one.
    """

    worker_ids: tuple[str, ...]
    centroids_of: tuple[tuple[int, ...], ...]
    _flat: Ints = field(init=False, repr=False, compare=False)
    _starts: Ints = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.worker_ids or list(self.worker_ids) != sorted(set(self.worker_ids)):
            limit = "sorted and distinct, at least one"
            raise InvalidValue(field="worker_ids", value=self.worker_ids, limit=limit)
        if len(self.centroids_of) != len(self.worker_ids) or not all(self.centroids_of):
            limit = f"{len(self.worker_ids)} sets of at least one centroid"
            raise InvalidValue(field="centroids_of", value=self.centroids_of, limit=limit)
        sizes = [len(centroids) for centroids in self.centroids_of]
        flat = np.array([c for centroids in self.centroids_of for c in centroids], dtype=np.int64)
        object.__setattr__(self, "_flat", flat)
        object.__setattr__(self, "_starts", np.cumsum([0, *sizes[:-1]], dtype=np.int64))

    def worker_similarities(self, similarities: Floats32) -> Floats32:
        """Return each worker's similarity, the greatest over its centroids.

        Parameters
        ----------
        similarities
            float32 `(n_centroids,)`.

        Returns
        -------
        float32 `(n_workers,)` in the order of `worker_ids`.

        Examples
        --------
        >>> two = CentroidMap(worker_ids=("a", "b"), centroids_of=((0, 2), (1,)))
        >>> two.worker_similarities(np.array([0.25, 0.5, 0.75], dtype=np.float32)).tolist()
        [0.75, 0.5]
        """
        by_worker: Floats32 = similarities[self._flat]
        if len(self._flat) == len(self.worker_ids):
            return by_worker
        greatest: Floats32 = np.maximum.reduceat(by_worker, self._starts)
        return greatest


def assign(
    version_hash: str,
    n_centroids: int,
    ready_workers: Sequence[str],
    *,
    centroid_weights: Sequence[float] | None = None,
    absent_workers: Sequence[str] = (),
) -> CentroidMap:
    """Give the centroids of a version to workers.

    Parameters
    ----------
    version_hash
        Content hash of the version, which seeds the scores.
    n_centroids
        1 to 4,096.
    ready_workers
        Ids of the workers that take requests; order and repetition do not matter.
    centroid_weights
        Share of traffic of each centroid; where workers and centroids differ in number it decides who
        doubles up. None means equal.
    absent_workers
        Workers that belong to the pool and do not take requests now (lost, draining). The map is made for
        the whole pool, then only their centroids move; a worker that returns finds its own.

    Returns
    -------
    Map over the ready workers in which every centroid has a worker and every worker a centroid.

    Examples
    --------
    >>> assign("v1", 3, ["b", "a"]).centroids_of
    ((0, 1), (2,))
    """
    ready = sorted(set(ready_workers))
    if not ready:
        raise InvalidConfig(field="ready_workers", value=list(ready_workers), limit="at least one worker")
    if not 1 <= n_centroids <= MAX_CENTROIDS:
        raise InvalidConfig(field="n_centroids", value=n_centroids, limit=f"from 1 to {MAX_CENTROIDS}")
    weights = _checked_weights(centroid_weights, n_centroids)
    pool = sorted({*ready, *absent_workers})
    carried = _assign_pool(version_hash, weights, pool)
    kept = {worker: list(carried[worker]) for worker in ready}
    served = {centroid for centroids in kept.values() for centroid in centroids}
    orphans = [centroid for centroid in range(n_centroids) if centroid not in served]
    _hand_out(orphans, kept, weights, _pair_scores(version_hash, n_centroids, ready))
    return CentroidMap(
        worker_ids=tuple(ready), centroids_of=tuple(tuple(sorted(kept[worker])) for worker in ready)
    )


def _assign_pool(version_hash: str, weights: list[float], pool: list[str]) -> dict[str, list[int]]:
    slots = _slots(weights, len(pool))
    scores = _pair_scores(version_hash, len(slots), pool)
    worker_of = _best_first(scores)
    carried: dict[str, list[int]] = {worker: [] for worker in pool}
    for slot, position in worker_of.items():
        carried[pool[position]].append(slots[slot])
    left_over = [slots[slot] for slot in range(len(slots)) if slot not in worker_of]
    _hand_out(left_over, carried, weights, scores)
    return carried


def _slots(weights: list[float], n_workers: int) -> list[int]:
    """Centroid of each slot: all once, then, while workers outnumber slots, the most weight a slot."""
    slots = list(range(len(weights)))
    n_slots = [1] * len(weights)
    while len(slots) < n_workers:
        busiest = max(range(len(weights)), key=lambda c: (weights[c] / n_slots[c], -c))
        slots.append(busiest)
        n_slots[busiest] += 1
    return slots


def _best_first(scores: NDArray[np.uint64]) -> dict[int, int]:
    """Match slots to workers one to one, the highest score first, until one side is used up."""
    n_slots, n_workers = scores.shape
    worker_of: dict[int, int] = {}
    taken: set[int] = set()
    for pair in np.argsort(scores, axis=None, kind="stable")[::-1].tolist():
        slot, worker = divmod(pair, n_workers)
        if slot not in worker_of and worker not in taken:
            worker_of[slot] = worker
            taken.add(worker)
            if len(taken) == min(n_slots, n_workers):
                break
    return worker_of


def _hand_out(
    centroids: list[int], carried: dict[str, list[int]], weights: list[float], scores: NDArray[np.uint64]
) -> None:
    """Add each centroid, the heaviest first, to the worker that carries least; ties by score."""
    workers = list(carried)
    load = [sum(weights[c] for c in carried[worker]) for worker in workers]
    for centroid in sorted(centroids, key=lambda c: (-weights[c], c)):
        lightest = min(
            range(len(workers)),
            key=lambda w: (round(load[w], 9), len(carried[workers[w]]), -int(scores[centroid, w])),
        )
        carried[workers[lightest]].append(centroid)
        load[lightest] += weights[centroid]


def _pair_scores(version_hash: str, n_slots: int, workers: list[str]) -> NDArray[np.uint64]:
    """Hash scores uint64 `(n_slots, n_workers)`, the same in every process."""
    by_worker = np.array([_key(f"{version_hash}/worker/{worker}") for worker in workers], dtype=np.uint64)
    by_slot = np.array([_key(f"{version_hash}/slot/{slot}") for slot in range(n_slots)], dtype=np.uint64)
    return _mix(by_slot[:, None] ^ _mix(by_worker)[None, :])


def _key(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scramble 64-bit words, the finaliser of splitmix64 (Steele, Lea, Flood 2014)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _checked_weights(weights: Sequence[float] | None, n_centroids: int) -> list[float]:
    if weights is None:
        return [1.0] * n_centroids
    if len(weights) != n_centroids:
        raise InvalidConfig(field="centroid_weights length", value=len(weights), limit=f"{n_centroids}")
    for centroid, weight in enumerate(weights):
        if not (isfinite(weight) and weight >= 0):
            limit = "a finite number, 0 or more"
            raise InvalidConfig(field=f"centroid_weights[{centroid}]", value=weight, limit=limit)
    return [float(weight) for weight in weights]
