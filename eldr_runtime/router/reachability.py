"""Which workers are left out for a moment because they just failed."""

from collections.abc import Callable, Iterable

from eldr_runtime.router.request_clock import now_seconds

FAILURES_IN_A_ROW = 3


class Reachability:
    """A simple breaker: one refused connection, or three other failures in a row, and a worker rests.

    A 4xx and a client that left are no failures of a worker; whoever calls this knows.

    Examples
    --------
    >>> time = [0.0]
    >>> reachability = Reachability(rest_seconds=1.0, now=lambda: time[0])
    >>> reachability.failed("decode-0", is_unreachable=True)
    >>> reachability.reachable(["decode-0", "decode-1"])
    ('decode-1',)
    >>> time[0] = 1.0
    >>> reachability.reachable(["decode-0", "decode-1"])
    ('decode-0', 'decode-1')
    """

    def __init__(self, rest_seconds: float, now: Callable[[], float] = now_seconds) -> None:
        self._rest_seconds = rest_seconds
        self._now = now
        self._rests_until: dict[str, float] = {}
        self._n_failures: dict[str, int] = {}

    def failed(self, worker_id: str, *, is_unreachable: bool) -> None:
        """Note a failure of a worker."""
        self._n_failures[worker_id] = self._n_failures.get(worker_id, 0) + 1
        if is_unreachable or self._n_failures[worker_id] >= FAILURES_IN_A_ROW:
            self._rests_until[worker_id] = self._now() + self._rest_seconds

    def succeeded(self, worker_id: str) -> None:
        """Note that a worker answered."""
        if self._n_failures:
            self._n_failures.pop(worker_id, None)
            self._rests_until.pop(worker_id, None)

    def reachable(self, worker_ids: Iterable[str]) -> tuple[str, ...]:
        """Return the workers that do not rest now, in the given order."""
        if not self._rests_until:
            return tuple(worker_ids)
        now = self._now()
        return tuple([each for each in worker_ids if self._rests_until.get(each, 0.0) <= now])

    def keep(self, worker_ids: Iterable[str]) -> None:
        """Forget all other workers."""
        kept = set(worker_ids)
        self._n_failures = {each: n for each, n in self._n_failures.items() if each in kept}
        self._rests_until = {each: at for each, at in self._rests_until.items() if each in kept}
