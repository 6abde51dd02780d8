"""The client's side of one request: its body, whether it is still there, and what it has got so far."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from starlette.types import Receive, Scope, Send

from eldr_runtime.router.errors import BodyTooLarge, ClientGone, RouterError

REQUEST_ID_HEADER = b"x-request-id"
JSON_TYPE = b"application/json"
EVENT_STREAM_TYPE = b"text/event-stream; charset=utf-8"


class ClientConnection:
    """Owns `receive` and `send` of one ASGI request.

    Attributes
    ----------
    is_gone
        The client closed before it had its whole answer. uvicorn drops what is sent after that without a
        word, so somebody has to listen: `watch` does.
    has_begun, is_complete
        Whether a status has been sent, and whether the answer's end has.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.is_gone = False
        self.has_begun = False
        self.is_complete = False
        self._headers: list[tuple[bytes, bytes]] = scope["headers"]
        self._receive = receive
        self._send = send
        self._on_gone: Callable[[], None] | None = None

    def header(self, name: bytes) -> str | None:
        """Return a header of the request; the name in lower case."""
        for each, value in self._headers:
            if each == name:
                return value.decode("latin-1")
        return None

    async def read_body(self, max_bytes: int) -> bytes:
        """Read the whole body; BodyTooLarge once it is over the limit, ClientGone if it breaks off."""
        pieces: list[bytes] = []
        n_bytes = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self.is_gone = True
                raise ClientGone("the client closed before its request was complete")
            piece = message.get("body", b"")
            n_bytes += len(piece)
            if n_bytes > max_bytes:
                raise BodyTooLarge(f"the body is over the limit of {max_bytes} bytes")
            pieces.append(piece)
            if not message.get("more_body", False):
                return b"".join(pieces)

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Listen for the client's end while the block runs; the body must have been read."""
        watcher = asyncio.create_task(self._listen())
        try:
            yield
        finally:
            watcher.cancel()

    @contextmanager
    def when_gone(self, action: Callable[[], None]) -> Iterator[None]:
        """Call `action` once if the client goes while the block runs."""
        self._on_gone = action
        try:
            yield
        finally:
            self._on_gone = None

    async def begin_stream(self, request_id: str) -> None:
        """Send status 200; the worker has really begun."""
        headers = [(b"content-type", EVENT_STREAM_TYPE), (b"cache-control", b"no-cache")]
        await self._begin(200, headers, request_id)

    async def send(self, data: bytes, *, is_last: bool = False) -> None:
        """Send a part of the body; waits while the client reads more slowly than the worker writes."""
        self.is_complete = self.is_complete or is_last
        await self._send({"type": "http.response.body", "body": data, "more_body": not is_last})

    async def answer(
        self, status: int, body: bytes, request_id: str, *, retry_after: int | None = None
    ) -> None:
        """Send a whole JSON answer."""
        headers = [(b"content-type", JSON_TYPE), (b"content-length", str(len(body)).encode())]
        if retry_after is not None:
            headers.append((b"retry-after", str(retry_after).encode()))
        await self._begin(status, headers, request_id)
        await self.send(body, is_last=True)

    async def refuse(self, error: RouterError, request_id: str) -> None:
        """Tell the client what went wrong: a status before the first byte, an event after it.

        A broken stream ends without `[DONE]`, so that no client takes it for whole.
        """
        if self.is_gone or self.is_complete:
            return
        if self.has_begun:
            await self.send(error.to_event(), is_last=True)
            return
        await self.answer(error.status, error.to_body(), request_id, retry_after=error.retry_after_seconds)

    async def _begin(self, status: int, headers: list[tuple[bytes, bytes]], request_id: str) -> None:
        self.has_begun = True
        headers.append((REQUEST_ID_HEADER, request_id.encode("latin-1")))
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if self.is_complete:
            return
        self.is_gone = True
        if self._on_gone is not None:
            self._on_gone()
