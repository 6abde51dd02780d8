"""The control port of a fleet: list, add and kill workers while it runs, and how it fares."""

from dataclasses import dataclass

from aiohttp import web
from aiohttp.typedefs import Handler

from eldr_runtime.errors import InvalidConfig, InvalidValue
from eldr_runtime.json_values import to_json_value
from eldr_runtime.routing_config import WorkerRole
from eldr_runtime.simulated_fleet.commands import read_command
from eldr_runtime.simulated_fleet.decode_profiles import DecodeProfilePush
from eldr_runtime.simulated_fleet.fleet import Fleet
from eldr_runtime.simulated_fleet.vllm_answers import error_document


@dataclass(frozen=True, slots=True, kw_only=True)
class AddWorker:
    """Body of `POST /simulated/workers`."""

    role: WorkerRole


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetStatus:
    """Answer of `GET /simulated/status`."""

    in_flight: int
    decode_profiles_pushed: int
    decode_profiles_dropped: int


@web.middleware
async def answer_refusals(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer 404 for a worker nobody knows, 400 for other commands that are not acceptable."""
    try:
        return await handler(request)
    except InvalidValue as error:
        is_unknown = isinstance(error, InvalidConfig) and error.field == "worker_id"
        status = 404 if is_unknown else 400
        return web.json_response(error_document(status, str(error), error.field), status=status)


def build_fleet_control(fleet: Fleet, push: DecodeProfilePush) -> web.Application:
    """Return the control application of a running fleet."""

    async def list_workers(request: web.Request) -> web.Response:
        return web.json_response({"workers": [to_json_value(entry) for entry in fleet.entries()]})

    async def show_status(request: web.Request) -> web.Response:
        status = FleetStatus(
            in_flight=fleet.n_in_flight(),
            decode_profiles_pushed=push.n_pushed,
            decode_profiles_dropped=push.n_dropped,
        )
        return web.json_response(to_json_value(status))

    async def add_worker(request: web.Request) -> web.Response:
        command = read_command(AddWorker, await request.read())
        return web.json_response(to_json_value(await fleet.add(command.role)), status=201)

    async def kill_worker(request: web.Request) -> web.Response:
        await fleet.kill(request.match_info["worker_id"])
        return web.Response(status=204)

    application = web.Application(middlewares=[answer_refusals])
    application.add_routes(
        [
            web.get("/simulated/status", show_status),
            web.get("/simulated/workers", list_workers),
            web.post("/simulated/workers", add_worker),
            web.delete("/simulated/workers/{worker_id}", kill_worker),
        ]
    )
    return application
