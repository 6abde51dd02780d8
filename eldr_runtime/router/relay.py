"""The decode worker's answer on its way to the client, with the few figures read in passing."""

import json
from collections.abc import Callable

import aiohttp

from eldr_runtime.router.client_connection import ClientConnection
from eldr_runtime.router.deadline import Deadline
from eldr_runtime.router.errors import UpstreamFailed
from eldr_runtime.router.event_stream import EventStream, token_count
from eldr_runtime.router.exchange import Exchange
from eldr_runtime.router.request_clock import now_seconds
from eldr_runtime.router.upstream import read_answer
from eldr_runtime.serving_engine import JsonObject


async def relay_stream(
    response: aiohttp.ClientResponse,
    exchange: Exchange,
    client: ClientConnection,
    deadline: Deadline,
    worker_id: str,
) -> None:
    """Pass a stream on; status 200 goes out with its first event, and only `[DONE]` makes it whole."""
    events = EventStream(worker_id=worker_id, is_usage_wanted=exchange.call.is_usage_wanted)
    clock = exchange.clock
    async for data in response.content.iter_any():
        deadline.heard()
        passed_on = events.feed(data)
        if events.has_content:
            clock.saw_content(now_seconds())
        if passed_on:
            if not client.has_begun:
                await client.begin_stream(exchange.request_id)
            if events.is_done:
                exchange.prompt_tokens = events.prompt_tokens
                exchange.completion_tokens = events.completion_tokens
            deadline.is_sending = True
            await client.send(passed_on, is_last=events.is_done)
            deadline.is_sending = False
        if events.error is not None:
            message = f"decode worker {worker_id} failed: {events.error}"
            raise UpstreamFailed(message, worker_id=worker_id)
        # After [DONE] the loop goes on to the end of the answer, so that the connection can be used again.
    if not events.is_done:
        raise UpstreamFailed(f"decode worker {worker_id} ended its stream early", worker_id=worker_id)


async def relay_answer(
    response: aiohttp.ClientResponse,
    exchange: Exchange,
    client: ClientConnection,
    worker_id: str,
    complete: Callable[[JsonObject], JsonObject] | None,
) -> None:
    """Read the usage of a whole answer and pass it on, as it is unless there is something to `complete`."""
    data = await read_answer(response, worker_id)
    try:
        document = json.loads(data)
    except ValueError as error:
        message = f"decode worker {worker_id} answered with no JSON"
        raise UpstreamFailed(message, worker_id=worker_id) from error
    usage = document.get("usage") if isinstance(document, dict) else None
    if isinstance(usage, dict):
        exchange.prompt_tokens = token_count(usage, "prompt_tokens")
        exchange.completion_tokens = token_count(usage, "completion_tokens")
    if complete is not None and isinstance(document, dict):
        data = json.dumps(complete(document)).encode()
    await client.answer(200, data, exchange.request_id)
