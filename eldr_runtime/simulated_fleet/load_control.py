"""The control port of a load generator: `POST /mix` and `GET /status`."""

from aiohttp import web
from aiohttp.typedefs import Handler

from eldr_runtime.errors import InvalidValue
from eldr_runtime.json_values import to_json_value
from eldr_runtime.simulated_fleet.commands import read_command
from eldr_runtime.simulated_fleet.load_generator import LoadGenerator
from eldr_runtime.simulated_fleet.traffic_mix import SetMix
from eldr_runtime.simulated_fleet.vllm_answers import error_document


@web.middleware
async def answer_refusals(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer 400 with the reason where a command is not acceptable."""
    try:
        return await handler(request)
    except InvalidValue as error:
        return web.json_response(error_document(400, str(error), error.field), status=400)


def build_load_control(generator: LoadGenerator) -> web.Application:
    """Return the control application of a running generator."""

    async def set_mix(request: web.Request) -> web.Response:
        command = read_command(SetMix, await request.read())
        generator.set_unseen_share(command.unseen_topic_share)
        return web.json_response(to_json_value(generator.status().mix))

    async def show_status(request: web.Request) -> web.Response:
        return web.json_response(to_json_value(generator.status()))

    application = web.Application(middlewares=[answer_refusals])
    application.add_routes([web.post("/mix", set_mix), web.get("/status", show_status)])
    return application
