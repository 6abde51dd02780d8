"""One scope for every wait of the decode leg: first byte, next chunk, whole answer, and the client itself."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from eldr_runtime.errors import InvalidConfig
from eldr_runtime.router.client_connection import ClientConnection
from eldr_runtime.router.errors import ClientGone, UpstreamTimeout

# A timer a chunk costs more than the chunk; moved once a second it is late by at most that.
_MOVE_EVERY_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long the router waits for a worker, in seconds."""

    connect_seconds: float = 2.0
    prefill_seconds: float = 120.0
    first_byte_seconds: float = 60.0
    between_chunks_seconds: float = 30.0
    total_seconds: float = 1800.0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            seconds = getattr(self, name)
            if not 0 < seconds <= 86_400:
                raise InvalidConfig(field=name, value=seconds, limit="over 0 and at most 86400")


class Deadline:
    """The moment at which the scope ends unless the worker is heard of.

    `is_streaming` says that the worker has begun, `is_sending` that the client is what we wait for.
    """

    def __init__(self, scope: asyncio.Timeout, timeouts: Timeouts, began_seconds: float) -> None:
        self._scope = scope
        self._between = timeouts.between_chunks_seconds
        self._end = began_seconds + timeouts.total_seconds
        self._next_move = 0.0
        self.is_streaming = False
        self.is_sending = False

    def heard(self) -> None:
        """Note that the worker sent something."""
        now = asyncio.get_running_loop().time()
        if now >= self._next_move:
            self._next_move = now + min(_MOVE_EVERY_SECONDS, self._between / 4)
            self.is_streaming = True
            self._scope.reschedule(min(now + self._between, self._end))

    def end_now(self) -> None:
        """Leave the scope at the next turn of the loop."""
        if not self._scope.expired():
            self._scope.reschedule(asyncio.get_running_loop().time())


@asynccontextmanager
async def decode_deadline(
    timeouts: Timeouts, client: ClientConnection, worker_id: str
) -> AsyncIterator[Deadline]:
    """Bound a decode leg; raises UpstreamTimeout, or ClientGone as soon as the client has left."""
    began = asyncio.get_running_loop().time()
    deadline: Deadline | None = None
    try:
        async with asyncio.timeout(min(timeouts.first_byte_seconds, timeouts.total_seconds)) as scope:
            deadline = Deadline(scope, timeouts, began)
            with client.when_gone(deadline.end_now):
                if client.is_gone:
                    raise ClientGone("the client closed before its answer began")
                yield deadline
    except TimeoutError as error:
        if deadline is not None and deadline.is_sending:
            client.is_gone = True  # it is there but does not read, and would hold up an error event as well
        if client.is_gone:
            raise ClientGone("the client closed during its answer") from error
        waited = (
            "stopped in its answer" if deadline is not None and deadline.is_streaming else "did not begin"
        )
        message = f"decode worker {worker_id} {waited} within the time limit"
        raise UpstreamTimeout(message, worker_id=worker_id) from error
