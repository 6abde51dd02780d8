"""How many decode requests each worker has in flight: counted at selection, given back at any end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np

from eldr_runtime.array_types import Ints
from eldr_runtime.errors import InvalidValue


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PoolView:
    """The candidate workers of one decision and their load at that moment.

    Parameters
    ----------
    worker_ids
        Distinct candidates; at least one.
    in_flight
        int64 `(n_workers,)`, decode requests in flight on each candidate.
    n_routed
        Requests the counter has routed so far; round robin takes its turn from it.
    """

    worker_ids: tuple[str, ...]
    in_flight: Ints
    n_routed: int = 0

    def __post_init__(self) -> None:
        if not self.worker_ids:
            raise InvalidValue(field="worker_ids", value=self.worker_ids, limit="at least one worker")
        if self.in_flight.shape != (len(self.worker_ids),):
            limit = f"one count a worker, shape ({len(self.worker_ids)},)"
            raise InvalidValue(field="in_flight shape", value=self.in_flight.shape, limit=limit)
        if self.in_flight.dtype != np.int64:
            raise InvalidValue(field="in_flight dtype", value=self.in_flight.dtype, limit="int64")
        least = int(self.in_flight[self.in_flight.argmin()])
        if least < 0:
            raise InvalidValue(field="in_flight", value=least, limit="0 or more")

    def __len__(self) -> int:
        return len(self.worker_ids)


class _Tally:
    """The count of one life of one worker; a worker that rejoins gets a new one."""

    __slots__ = ("n_in_flight",)

    def __init__(self) -> None:
        self.n_in_flight = 0


class InFlightLease:
    """One request's place on a worker; `release` gives it back once, further calls do nothing.

    The lease holds the tally it was counted in, so that a request that outlives its worker
    cannot subtract from the count of the worker's next life.
    """

    __slots__ = ("_is_held", "_tally", "worker_id")

    def __init__(self, worker_id: str, tally: _Tally) -> None:
        self.worker_id = worker_id
        self._tally = tally
        self._is_held = True
        tally.n_in_flight += 1

    @property
    def is_held(self) -> bool:
        """Whether the place is still taken."""
        return self._is_held

    def release(self) -> None:
        """Give the place back."""
        if self._is_held:
            self._is_held = False
            self._tally.n_in_flight -= 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class InFlightCounter:
    """Counts in-flight decode requests by worker, for one thread or one event loop.

    Examples
    --------
    >>> counter = InFlightCounter()
    >>> with counter.acquire("decode-0"):
    ...     counter.view(["decode-0", "decode-1"]).in_flight.tolist()
    [1, 0]
    >>> counter.in_flight("decode-0")
    0
    """

    def __init__(self) -> None:
        self._tallies: dict[str, _Tally] = {}
        self._n_routed = 0

    @property
    def n_routed(self) -> int:
        """Requests acquired so far."""
        return self._n_routed

    def acquire(self, worker_id: str) -> InFlightLease:
        """Count one request on a worker, which joins with its first request."""
        tally = self._tallies.get(worker_id)
        if tally is None:
            tally = self._tallies[worker_id] = _Tally()
        self._n_routed += 1
        return InFlightLease(worker_id, tally)

    def leave(self, worker_id: str) -> None:
        """Forget a worker that is gone; should it come back it starts at zero."""
        self._tallies.pop(worker_id, None)

    def in_flight(self, worker_id: str) -> int:
        """Count of one worker, zero where it is not known."""
        tally = self._tallies.get(worker_id)
        return 0 if tally is None else tally.n_in_flight

    def by_worker(self) -> Mapping[str, int]:
        """Count of each known worker, sorted by id."""
        return {worker_id: self._tallies[worker_id].n_in_flight for worker_id in sorted(self._tallies)}

    def view(self, worker_ids: Sequence[str]) -> PoolView:
        """Load of the candidates in the given order."""
        tallies = self._tallies
        counts = [tallies[each].n_in_flight if each in tallies else 0 for each in worker_ids]
        return PoolView(
            worker_ids=tuple(worker_ids),
            in_flight=np.array(counts, dtype=np.int64),
            n_routed=self._n_routed,
        )
