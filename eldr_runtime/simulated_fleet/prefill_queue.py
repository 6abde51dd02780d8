"""One prefill at a time, first come, first served, in real time."""

import asyncio
import time
from collections.abc import Callable

BASE_MS = 30.0
PER_TOKEN_MS = 0.03


def prefill_ms(computed_tokens: int) -> float:
    """Return how long a prompt takes with so many tokens to compute (assumed, as in the simulator)."""
    return BASE_MS + PER_TOKEN_MS * computed_tokens


class PrefillQueue:
    """The engine of a prefill worker: `async with queue.turn()` around each prompt.

    The next prompt starts when the one before should have ended, not when its caller woke up, so late
    timers do not add up.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = asyncio.Lock()
        self._free_at_seconds = float("-inf")
        self.n_waiting = 0

    @property
    def n_running(self) -> int:
        """Prompts in the engine: 0 or 1."""
        return int(self._lock.locked())

    async def run(self, duration_ms: Callable[[], float]) -> None:
        """Wait for the engine, then as long as the prompt takes; `duration_ms` is asked at its start."""
        arrived_at_seconds = self._clock()
        self.n_waiting += 1
        try:
            await self._lock.acquire()
        finally:
            self.n_waiting -= 1
        try:
            starts_at_seconds = max(arrived_at_seconds, self._free_at_seconds)
            ends_at_seconds = starts_at_seconds + duration_ms() / 1000.0
            await asyncio.sleep(max(0.0, ends_at_seconds - self._clock()))
            self._free_at_seconds = ends_at_seconds
        except asyncio.CancelledError:
            self._free_at_seconds = self._clock()
            raise
        finally:
            self._lock.release()
