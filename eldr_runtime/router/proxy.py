"""The one handler that serves a generating request, from its body to its last byte."""

import time
from collections.abc import Mapping

from starlette.types import Receive, Scope, Send

from eldr_runtime.router.attempts import request_id_from
from eldr_runtime.router.client_connection import REQUEST_ID_HEADER, ClientConnection
from eldr_runtime.router.data_plane import DataPlane
from eldr_runtime.router.errors import BadRequest, ClientGone, NoWorker, RouterError, UpstreamFailed
from eldr_runtime.router.exchange import NESTED_TOO_DEEPLY, Exchange, outcome_of, parse_call
from eldr_runtime.router.request_clock import RequestClock
from eldr_runtime.routing_event import Outcome
from eldr_runtime.serving_engine import JsonObject

# End-to-end headers the workers may want. All others stay here: hop-by-hop ones must, and the rest may hold
# what a worker has no business to know.
PASSED_ON_HEADERS = ("authorization", "traceparent", "tracestate")
PROBE = "eldr.probe"
"""Key of the scope of the router's own readiness request, which is in no telemetry."""
COMPLETED = "completed"
STOPPED = "stopped"


class GenerationEndpoint:
    """ASGI application of one generating path; the data plane is in the state of the lifespan."""

    def __init__(self, path: str) -> None:
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; however it ends, it is counted once and every in-flight count is given back."""
        clock = RequestClock.started()
        plane: DataPlane = scope["state"]["plane"]
        client = ClientConnection(scope, receive, send)
        request_id = request_id_from(client.header(REQUEST_ID_HEADER))
        exchange: Exchange | None = None
        ended = STOPPED
        try:
            with plane.doors.enter():
                exchange = await self._accept(plane, client, clock, request_id)
                with client.watch():
                    await _serve(plane, exchange, client)
            ended = COMPLETED
            exchange.outcome = Outcome.COMPLETED
            plane.proof.given()
        except (RouterError, RecursionError) as caught:
            # Parsing takes a body that is nested a little deeper than writing it for a worker does.
            error = caught if isinstance(caught, RouterError) else BadRequest(NESTED_TOO_DEEPLY)
            ended = error.code
            if exchange is not None:
                exchange.outcome = outcome_of(error, has_decision=exchange.decision is not None)
            await client.refuse(error, request_id)
        finally:
            if PROBE not in scope:
                _count(plane, exchange, ended)

    async def _accept(
        self, plane: DataPlane, client: ClientConnection, clock: RequestClock, request_id: str
    ) -> Exchange:
        """Read the request and pin the configuration that it is served by to its end."""
        arrived_at = time.time()
        data = await client.read_body(plane.max_body_bytes)
        call = parse_call(self._path, data, _passed_on(client))
        snapshot = plane.config.snapshot
        if snapshot is None:
            raise NoWorker(plane.config.why_none())
        window = snapshot.window_at(arrived_at)
        return Exchange(
            request_id=request_id,
            call=call,
            clock=clock,
            arrived_at=arrived_at,
            snapshot=snapshot,
            window=window,
            arm=snapshot.arms[window.arm],
        )


async def _serve(plane: DataPlane, exchange: Exchange, client: ClientConnection) -> None:
    """Run both legs; one failed decode is tried again, from prefill where its KV may be used up."""
    legs = plane.legs
    legs.require_workers(exchange)
    hand_off = await _prefill(plane, exchange, client)
    try:
        await legs.decode(exchange, hand_off, client)
    except UpstreamFailed as error:
        if not legs.may_retry_decode(exchange, error):
            raise
        plane.metrics.retried("decode")
        if not error.is_untouched:
            hand_off = await _prefill(plane, exchange, client)
        await legs.decode(exchange, hand_off, client)


async def _prefill(plane: DataPlane, exchange: Exchange, client: ClientConnection) -> JsonObject | None:
    """Run the prefill leg; if the client has left meanwhile, nobody will fetch its KV."""
    hand_off = await plane.legs.prefill(exchange)
    if client.is_gone:
        await plane.legs.release(exchange, hand_off)
        raise ClientGone("the client closed before decode")
    return hand_off


def _count(plane: DataPlane, exchange: Exchange | None, ended: str) -> None:
    metrics = plane.metrics
    if exchange is None:
        metrics.ended(ended)
        return
    metrics.ended(ended, exchange.ttft_ms, exchange.tpot_ms)
    if exchange.decision is not None and exchange.unsigned is not None:
        metrics.unsigned(exchange.unsigned)
    plane.record(exchange)


def _passed_on(client: ClientConnection) -> Mapping[str, str]:
    found = {name: client.header(name.encode()) for name in PASSED_ON_HEADERS}
    return {name: value for name, value in found.items() if value is not None}
