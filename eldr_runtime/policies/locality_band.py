"""Locality-band routing: the published `eldr`, and `eldr_capped` with a load cap and seeded ties.

Candidates pass three steps in sight of each other: the band keeps the most similar workers, the load
cap drops those too far above the mean, and the least loaded of what is left is picked. The band is
found on the array, the rest works on plain lists: on few workers an array costs more in calls than in
arithmetic.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eldr_runtime.array_types import Floats
from eldr_runtime.policies.choice import Choice, Reason, RoutingRequest, TieBreak, checked_similarities
from eldr_runtime.policies.load_balancing import least_loaded, shortest_queue_choice
from eldr_runtime.worker_load import PoolView


def locality_band(similarities: Floats, tau: float, minimum_candidates: int = 1) -> list[int]:
    """Return the workers within `tau` of the most similar one, ascending (arXiv 2607.00466, locality band).

    Parameters
    ----------
    similarities
        float64 `(n_workers,)`; in double precision `max - tau` is not rounded to the precision of float32.
    tau
        Width of the band, 0 to 2.
    minimum_candidates
        2 is the variant `min2` of the authors' artifact: where tau > 0 and one worker is in the band, the
        two most similar form it (lowest index on ties).

    Examples
    --------
    >>> locality_band(np.array([0.9, 0.85, 0.5]), tau=0.1)
    [0, 1]
    """
    threshold = similarities[similarities.argmax()] - tau
    band: list[int] = (similarities >= threshold).nonzero()[0].tolist()
    if minimum_candidates == 2 and tau > 0 and len(band) == 1 and similarities.size > 1:
        others = similarities.copy()
        others[band[0]] = -np.inf
        band = sorted([*band, int(others.argmax())])
    return band


def load_limit(in_flight: Sequence[int], load_cap: float) -> float:
    """Return the load a worker may have with one more request: `max(load_cap * mean + 1, min + 1)`.

    Ours, not published. Mean and minimum are over all candidates, so the least loaded one always fits.

    Examples
    --------
    >>> load_limit([10, 2, 3], load_cap=1.25)
    7.25
    """
    return max(load_cap * (sum(in_flight) / len(in_flight)) + 1, min(in_flight) + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalityBand:
    """The least loaded worker of the locality band.

    With `load_cap=None` and `tie_break=LOWEST_INDEX` this is the published policy exactly. With a cap, a
    band that the cap empties widens to the next most similar workers: the band of those under the cap.
    """

    tau: float
    load_cap: float | None
    minimum_candidates: int
    tie_break: TieBreak

    def choose(self, request: RoutingRequest, pool: PoolView, rng: np.random.Generator) -> Choice:
        """Choose a worker; without similarities the least loaded of all, and the reason says so."""
        if request.similarities is None:
            return shortest_queue_choice(pool, rng, Reason.NO_SIGNATURE)
        similarities = checked_similarities(request.similarities, pool)
        in_flight: list[int] = pool.in_flight.tolist()
        band = locality_band(similarities, self.tau, self.minimum_candidates)
        candidates, reason = self._under_cap(band, similarities, in_flight)
        tie_rng = rng if self.tie_break is TieBreak.SEEDED_DRAW else None
        return Choice(
            index=least_loaded(candidates, in_flight, tie_rng), band=tuple(candidates), reason=reason
        )

    def _under_cap(
        self, band: list[int], similarities: Floats, in_flight: list[int]
    ) -> tuple[list[int], Reason]:
        if self.load_cap is None:
            return band, Reason.WITHIN_BAND
        limit = load_limit(in_flight, self.load_cap)
        kept = [worker for worker in band if in_flight[worker] + 1 <= limit]
        if kept:
            return kept, Reason.WITHIN_BAND
        others = [worker for worker, load in enumerate(in_flight) if load + 1 <= limit]
        next_most_similar = locality_band(similarities[others], self.tau)
        return [others[position] for position in next_most_similar], Reason.BAND_WIDENED
