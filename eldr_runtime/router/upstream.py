"""Calls to the workers over aiohttp, with every way they fail turned into the router's own errors."""

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import aiohttp

from eldr_runtime.router.deadline import Timeouts
from eldr_runtime.router.errors import UpstreamFailed, UpstreamRefused, UpstreamTimeout
from eldr_runtime.serving_engine import JsonObject

# vLLM's uvicorn closes an idle connection after 5 s; a request sent into that moment would fail.
KEEP_ALIVE_SECONDS = 3.0
MAX_ANSWER_BYTES = 64 << 20
GET_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerAddress:
    """Where a worker listens."""

    worker_id: str
    url: str


def open_worker_session(timeouts: Timeouts) -> aiohttp.ClientSession:
    """Open the session for all workers.

    Connections are not limited: a limit over all hosts would let one stopped worker starve the others.
    aiohttp sets TCP_NODELAY on each. Only connecting is bounded here; the rest by callers, who know the leg.
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_SECONDS),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=timeouts.connect_seconds),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        headers={"Accept-Encoding": "identity", "Content-Type": "application/json"},
    )


class Upstream:
    """The workers, as the two legs call them."""

    def __init__(self, session: aiohttp.ClientSession, timeouts: Timeouts) -> None:
        self._session = session
        self._timeouts = timeouts

    async def call(
        self, worker: WorkerAddress, path: str, body: Mapping[str, object], headers: Mapping[str, str]
    ) -> JsonObject:
        """Send a request that answers with one JSON object, as prefill does."""
        total = aiohttp.ClientTimeout(
            total=self._timeouts.prefill_seconds, sock_connect=self._timeouts.connect_seconds
        )
        async with self.open(worker, path, body, headers, limits=total) as response:
            data = await read_answer(response, worker.worker_id)
        try:
            document = json.loads(data)
        except ValueError as error:
            message = f"worker {worker.worker_id} answered with no JSON"
            raise UpstreamFailed(message, worker_id=worker.worker_id) from error
        if not isinstance(document, dict):
            message = f"worker {worker.worker_id} answered with no JSON object"
            raise UpstreamFailed(message, worker_id=worker.worker_id)
        return document

    async def get(self, worker: WorkerAddress, path: str, headers: Mapping[str, str]) -> bytes:
        """Get a document of a worker, such as its list of models."""
        limits = aiohttp.ClientTimeout(total=GET_SECONDS, sock_connect=self._timeouts.connect_seconds)
        worker_id = worker.worker_id
        with _translated(worker_id):
            async with self._session.get(worker.url + path, headers=headers, timeout=limits) as response:
                if response.status != 200:
                    await _raise_for_status(response, worker_id)
                return await read_answer(response, worker_id)

    @asynccontextmanager
    async def open(
        self,
        worker: WorkerAddress,
        path: str,
        body: Mapping[str, object],
        headers: Mapping[str, str],
        *,
        limits: aiohttp.ClientTimeout | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request and hold its answer, status 200; leaving early closes the connection."""
        data = json.dumps(body, separators=(",", ":")).encode()
        with _translated(worker.worker_id):
            async with self._session.post(
                worker.url + path,
                data=data,
                headers=headers,
                timeout=limits or self._session.timeout,
                allow_redirects=False,
            ) as response:
                if response.status != 200:
                    await _raise_for_status(response, worker.worker_id)
                yield response


@contextmanager
def _translated(worker_id: str) -> Iterator[None]:
    """Turn aiohttp's errors into ours; what tells them apart is whether the worker can have begun."""
    try:
        yield
    except aiohttp.ConnectionTimeoutError as error:
        message = f"worker {worker_id} does not take connections"
        raise UpstreamTimeout(message, worker_id=worker_id, is_untouched=True) from error
    except aiohttp.ClientConnectorError as error:
        message = f"worker {worker_id} cannot be reached"
        raise UpstreamFailed(message, worker_id=worker_id, is_untouched=True) from error
    except TimeoutError as error:
        message = f"worker {worker_id} did not answer within the time limit"
        raise UpstreamTimeout(message, worker_id=worker_id) from error
    except (aiohttp.ClientError, ConnectionError) as error:
        message = f"worker {worker_id} broke the connection"
        raise UpstreamFailed(message, worker_id=worker_id) from error


async def read_answer(response: aiohttp.ClientResponse, worker_id: str) -> bytes:
    """Read a whole answer; UpstreamFailed if it is over the limit."""
    pieces: list[bytes] = []
    n_bytes = 0
    async for piece in response.content.iter_any():
        n_bytes += len(piece)
        if n_bytes > MAX_ANSWER_BYTES:
            message = f"the answer of worker {worker_id} is over {MAX_ANSWER_BYTES} bytes"
            raise UpstreamFailed(message, worker_id=worker_id)
        pieces.append(piece)
    return b"".join(pieces)


async def _raise_for_status(response: aiohttp.ClientResponse, worker_id: str) -> None:
    if 400 <= response.status < 500:
        body = await read_answer(response, worker_id)
        raise UpstreamRefused(response.status, body, response.headers.get("Retry-After"))
    raise UpstreamFailed(f"worker {worker_id} answered with status {response.status}", worker_id=worker_id)
