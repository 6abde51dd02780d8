"""Runs a decode batch in real time: one timer, one wake-up a step."""

import asyncio
import math
import time
from collections.abc import Callable

from eldr_runtime.simulated_fleet.decode_batch import DecodeBatch


class BatchClock:
    """Calls `batch.advance` when its next step ends; never early, and late at most by the loop's own lag.

    Event loops count in milliseconds, so the delay is rounded up; the batch's own times stay exact, so
    this delays a token by up to a millisecond and does not add up.
    """

    def __init__(self, batch: DecodeBatch, clock: Callable[[], float] = time.monotonic) -> None:
        self._batch = batch
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._fires_at_seconds = math.inf
        self._halted_at_seconds: float | None = None
        self.late_seconds = 0.0

    @property
    def is_halted(self) -> bool:
        """No step ends until :meth:`resume`."""
        return self._halted_at_seconds is not None

    def arm(self) -> None:
        """Set the timer for the batch's next event; call it when a request was submitted."""
        due_at_seconds = self._batch.next_event_seconds()
        if due_at_seconds is None or self.is_halted or due_at_seconds >= self._fires_at_seconds:
            return
        self._disarm()
        delay_ms = max(0, math.ceil((due_at_seconds - self._clock()) * 1000.0))
        self._fires_at_seconds = due_at_seconds
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000.0, self._fire)

    def halt(self) -> None:
        """Freeze the batch where it is."""
        if self._halted_at_seconds is None:
            self._halted_at_seconds = self._clock()
            self._disarm()

    def resume(self) -> None:
        """Let the step in progress take the rest of its time from now on."""
        if self._halted_at_seconds is not None:
            now_seconds = self._clock()
            self._batch.postpone(now_seconds, now_seconds - self._halted_at_seconds)
            self._halted_at_seconds = None
            self.arm()

    def _fire(self) -> None:
        self._timer = None
        now_seconds = self._clock()
        if now_seconds >= self._fires_at_seconds:
            self.late_seconds += now_seconds - self._fires_at_seconds
        self._fires_at_seconds = math.inf
        self._batch.advance(now_seconds)
        self.arm()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._fires_at_seconds = math.inf
