"""The HTTP side that all simulated workers share: one aiohttp application on one port, and its faults."""

import uuid
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from eldr_runtime.errors import InvalidMessage
from eldr_runtime.json_values import to_json_value
from eldr_runtime.simulated_fleet.commands import read_command
from eldr_runtime.simulated_fleet.faults import Fault, FaultKind, FaultSwitch
from eldr_runtime.simulated_fleet.generation_request import GenerationRequest, parse_generation_request
from eldr_runtime.simulated_fleet.vllm_answers import error_document

MAX_BODY_BYTES = 8 * 1024 * 1024
KEEP_ALIVE_SECONDS = 75.0
CONTROL_PREFIX = "/simulated/"

Generate = Callable[[web.Request, GenerationRequest], Awaitable[web.StreamResponse]]


class WorkerServer:
    """Serves one application on its own port; can be closed kindly or cut off."""

    def __init__(self, application: web.Application) -> None:
        self._runner = web.AppRunner(
            application,
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=KEEP_ALIVE_SECONDS,
            shutdown_timeout=0.5,
        )
        self.host = ""
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Listen; port 0 takes a free one."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, backlog=1024)
        await site.start()
        self.host = host
        self.port = int(self._runner.addresses[0][1])

    @property
    def url(self) -> str:
        """Base address."""
        return f"http://{self.host}:{self.port}"

    async def close(self) -> None:
        """Stop listening and let go of the connections."""
        await self._runner.cleanup()

    async def cut_off(self) -> None:
        """Reset every connection at once, as a killed process would, and stop listening."""
        server = self._runner.server
        for connection in list(server.connections) if server is not None else ():
            if connection.transport is not None:
                connection.transport.abort()
        await self._runner.cleanup()


def build_worker_application(
    *, model: str, faults: FaultSwitch, generate: Generate, metrics: Callable[[], str]
) -> web.Application:
    """Return an application with vLLM's paths and `/simulated/faults`; `generate` answers completions."""

    async def completions(request: web.Request) -> web.StreamResponse:
        return await _generate(request, model, generate, is_chat=False)

    async def chat(request: web.Request) -> web.StreamResponse:
        return await _generate(request, model, generate, is_chat=True)

    async def health(request: web.Request) -> web.Response:
        return web.Response()

    async def models(request: web.Request) -> web.Response:
        card = {"id": model, "object": "model", "created": 0, "owned_by": "vllm", "root": model}
        return web.json_response({"object": "list", "data": [card]})

    async def show_metrics(request: web.Request) -> web.Response:
        return web.Response(text=metrics(), content_type="text/plain")

    async def read_fault(request: web.Request) -> web.Response:
        return web.json_response(to_json_value(faults.fault))

    async def set_fault(request: web.Request) -> web.Response:
        faults.show(read_command(Fault, await request.read()))
        return web.json_response(to_json_value(faults.fault))

    application = web.Application(middlewares=[_fault_middleware(faults)], client_max_size=MAX_BODY_BYTES)
    application.add_routes(
        [
            web.post("/v1/completions", completions),
            web.post("/v1/chat/completions", chat),
            web.get("/v1/models", models),
            web.get("/health", health),
            web.get("/metrics", show_metrics),
            web.get("/simulated/faults", read_fault),
            web.post("/simulated/faults", set_fault),
        ]
    )
    return application


def request_id_of(request: web.Request) -> str:
    """Return the caller's `X-Request-Id`, or a new one."""
    return request.headers.get("X-Request-Id") or uuid.uuid4().hex


def error_response(status: int, message: str, param: str | None = None) -> web.Response:
    """Return an error in vLLM's form."""
    return web.json_response(error_document(status, message, param), status=status)


async def _generate(
    request: web.Request, model: str, generate: Generate, *, is_chat: bool
) -> web.StreamResponse:
    asked = parse_generation_request(await request.read(), is_chat=is_chat)
    if asked.model not in (None, model):
        return error_response(404, f"The model `{asked.model}` does not exist.", "model")
    return await generate(request, asked)


def _fault_middleware(faults: FaultSwitch) -> Middleware:
    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not request.path.startswith(CONTROL_PREFIX):
            await faults.wait_until_running()
            if faults.fault.kind is FaultKind.HTTP_5XX and request.path.startswith("/v1/"):
                return error_response(faults.fault.status, "a fault was asked for")
        try:
            return await handler(request)
        except InvalidMessage as error:
            return error_response(400, str(error), error.field)

    return middleware
