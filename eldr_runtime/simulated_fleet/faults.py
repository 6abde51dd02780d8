"""Faults a worker shows on demand, one at a time."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from eldr_runtime.errors import InvalidMessage


class FaultKind(StrEnum):
    """What a worker can be told to do wrong."""

    NONE = "none"
    SLOW = "slow"
    STOP = "stop"
    HTTP_5XX = "http_5xx"
    CUT_STREAM = "cut_stream"
    NO_COUNTS = "no_counts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Body of `POST /simulated/faults`.

    `factor` is how many times longer everything takes (slow); `status` what new requests are answered
    (http_5xx); `after_chunks` how many content chunks go out before the connection is cut (cut_stream).
    `stop` hangs every path, streams in flight included, as a stopped process would.
    """

    kind: FaultKind
    factor: float = 3.0
    status: int = 500
    after_chunks: int = 3

    def __post_init__(self) -> None:
        if not 1 <= self.factor <= 1000:
            raise InvalidMessage(field="factor", value=self.factor, limit="from 1 to 1000")
        if not 500 <= self.status <= 599:
            raise InvalidMessage(field="status", value=self.status, limit="from 500 to 599")
        if not 0 <= self.after_chunks <= 1_000_000:
            raise InvalidMessage(field="after_chunks", value=self.after_chunks, limit="from 0 to 1000000")


NO_FAULT = Fault(kind=FaultKind.NONE)


class FaultSwitch:
    """The fault a worker shows now, and who waits for it to pass."""

    def __init__(self) -> None:
        self._fault = NO_FAULT
        self._is_running = asyncio.Event()
        self._is_running.set()
        self._listeners: list[Callable[[], None]] = []

    @property
    def fault(self) -> Fault:
        """The fault shown now."""
        return self._fault

    @property
    def is_stopped(self) -> bool:
        """The worker hangs."""
        return self._fault.kind is FaultKind.STOP

    @property
    def slow_factor(self) -> float:
        """How many times longer than the latency model everything takes."""
        return self._fault.factor if self._fault.kind is FaultKind.SLOW else 1.0

    @property
    def cuts_after_chunks(self) -> int | None:
        """Content chunks a stream sends before it is cut; None: it is not cut."""
        return self._fault.after_chunks if self._fault.kind is FaultKind.CUT_STREAM else None

    def listen(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` whenever the fault has changed."""
        self._listeners.append(on_change)

    def show(self, fault: Fault) -> None:
        """Show this fault from now on."""
        self._fault = fault
        if self.is_stopped:
            self._is_running.clear()
        else:
            self._is_running.set()
        for on_change in self._listeners:
            on_change()

    async def wait_until_running(self) -> None:
        """Return once the worker does not hang."""
        await self._is_running.wait()
