"""Whether the router can serve: proved by a generation through both legs, not by a process that answers."""

import asyncio
import json
from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp, Message, Scope

from eldr_runtime.router.request_clock import now_seconds

PROBE_SECONDS = 10.0


class Proof:
    """When a request last went through both legs to its end; a client's will do."""

    def __init__(self, now: Callable[[], float] = now_seconds) -> None:
        self._now = now
        self._at_seconds: float | None = None

    def given(self) -> None:
        """Note that a request was served to its end."""
        self._at_seconds = self._now()

    def is_fresh(self, within_seconds: float) -> bool:
        """Return whether the last one is recent."""
        return self._at_seconds is not None and self._now() - self._at_seconds <= within_seconds


class Readiness:
    """Answers `/readyz`; without a fresh proof it makes one, one at a time."""

    def __init__(
        self, proof: Proof, *, fresh_seconds: float, probe: Callable[[], Awaitable[str | None]]
    ) -> None:
        self._proof = proof
        self._fresh_seconds = fresh_seconds
        self._probe = probe
        self._lock = asyncio.Lock()

    async def why_not(self) -> str | None:
        """Return why the router is not ready, None if it is."""
        async with self._lock:
            if self._proof.is_fresh(self._fresh_seconds):
                return None
            try:
                async with asyncio.timeout(PROBE_SECONDS):
                    return await self._probe()
            except TimeoutError:
                return f"a generation did not end within {PROBE_SECONDS:g} s"


async def generate_one_token(endpoint: ASGIApp, scope: Scope, model: str) -> str | None:
    """Send one short completion into the router's own endpoint; return what was wrong, None if nothing."""
    body = json.dumps({"model": model, "prompt": "ready?", "max_tokens": 1}).encode()
    sent: list[Message] = []
    is_read = False

    async def receive() -> Message:
        nonlocal is_read
        if is_read:
            await asyncio.Event().wait()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await endpoint(scope, receive, send)
    if sent[0]["status"] == 200:
        return None
    answer = b"".join(message.get("body", b"") for message in sent[1:])
    return f"status {sent[0]['status']}: {answer.decode(errors='replace')[:500]}"
