"""Bodies of requests: a limit on messages, and uploads that go to disk while they arrive."""

import hashlib
import re
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from fastapi import Request
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from controlplane.errors import MalformedRequest, TooLarge

UPLOAD_TYPE = "application/octet-stream"
UPLOAD_PATH = re.compile(r"/v1/fleets/[^/]+/(versions|trace-packs)")


class MessageLimit:
    """ASGI middleware that refuses a body over the limit.

    Uploads have limits of their own, applied after their sender is known; everywhere else the framework reads
    the body first, so a content type must not lift the limit.
    """

    def __init__(self, app: ASGIApp, limit_bytes: int) -> None:
        self.app = app
        self.limit_bytes = limit_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, counting its body."""
        if scope["type"] != "http" or _is_upload(scope):
            await self.app(scope, receive, send)
            return
        n_bytes = 0

        async def receive_limited() -> Message:
            nonlocal n_bytes
            message = await receive()
            n_bytes += len(message.get("body", b""))
            if n_bytes > self.limit_bytes:
                raise HTTPException(
                    413, f"the body has over {self.limit_bytes} bytes, the limit of a message"
                )
            return message

        await self.app(scope, receive_limited, send)


def _is_upload(scope: Scope) -> bool:
    is_file = Headers(scope=scope).get("content-type") == UPLOAD_TYPE
    return is_file and UPLOAD_PATH.fullmatch(scope["path"]) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A body on disk, gone when the request ends."""

    path: Path
    size_bytes: int
    sha256: str


@asynccontextmanager
async def spool(request: Request, limit_bytes: int) -> AsyncIterator[Upload]:
    """Write an upload to a temporary file while it arrives; refuse it as soon as it is over the limit."""
    if request.headers.get("content-type") != UPLOAD_TYPE:
        raise MalformedRequest(f"send the file as the body, with Content-Type: {UPLOAD_TYPE}")
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit_bytes:
        raise TooLarge(size_bytes=int(announced), limit_bytes=limit_bytes)
    digest = hashlib.sha256()
    size_bytes = 0
    with tempfile.NamedTemporaryFile(prefix="eldr-upload-") as file:
        async for chunk in request.stream():
            size_bytes += len(chunk)
            if size_bytes > limit_bytes:
                raise TooLarge(size_bytes=size_bytes, limit_bytes=limit_bytes)
            digest.update(chunk)
            file.write(chunk)
        file.flush()
        yield Upload(path=Path(file.name), size_bytes=size_bytes, sha256=digest.hexdigest())
