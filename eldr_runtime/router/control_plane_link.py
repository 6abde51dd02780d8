"""The control plane as the router knows it: an address, a key, and five calls."""

from dataclasses import dataclass

import aiohttp

from eldr_runtime.errors import EldrError

# Malformed, too large, not valid: what was sent is at fault, not the moment.
FINAL_STATUSES = (400, 413, 422)


class ControlPlaneUnavailable(EldrError):
    """The control plane cannot be reached, or does not answer as it should.

    `is_final` says that the same call would never get another answer.
    """

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Status, entity tag and body of an answer."""

    status: int
    etag: str | None
    body: bytes


class ControlPlaneLink:
    """Calls on behalf of one fleet."""

    def __init__(self, *, url: str, fleet: str, api_key: str | None, limit_seconds: float) -> None:
        headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self._base = f"{url.rstrip('/')}/v1/fleets/{fleet}"
        self._session = aiohttp.ClientSession(
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=limit_seconds),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def routing_config(self, known_etag: str | None) -> Answer:
        """Get the configuration; status 304 while `known_etag` is still the one in force."""
        headers = {} if known_etag is None else {"If-None-Match": known_etag}
        return await self._call("GET", "/routing-config", headers=headers, expected=(200, 304))

    async def artifact(self, content_hash: str) -> bytes:
        """Get the bytes of a version; whoever uses them verifies the hash."""
        return (await self._call("GET", f"/artifacts/{content_hash}", expected=(200,))).body

    async def heartbeat(self, message: str) -> None:
        """Say what runs here."""
        await self._call("POST", "/routers/heartbeat", text=message, expected=(200, 204))

    async def telemetry(self, message: str) -> None:
        """Hand over a batch of telemetry."""
        await self._call("POST", "/telemetry", text=message, expected=(200, 202, 204))

    async def _call(
        self,
        method: str,
        path: str,
        *,
        expected: tuple[int, ...],
        headers: dict[str, str] | None = None,
        text: str | None = None,
    ) -> Answer:
        headers = dict(headers or {})
        data = None
        if text is not None:
            headers["Content-Type"] = "application/json"
            data = text.encode()
        try:
            async with self._session.request(
                method, self._base + path, headers=headers, data=data
            ) as response:
                body = await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            kind = type(error).__name__
            raise ControlPlaneUnavailable(f"the control plane cannot be reached ({kind})") from error
        if response.status not in expected:
            message = f"the control plane answered {method} {path} with status {response.status}"
            raise ControlPlaneUnavailable(message, is_final=response.status in FINAL_STATUSES)
        return Answer(status=response.status, etag=response.headers.get("ETag"), body=body)
