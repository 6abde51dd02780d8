"""The router's routes, as a Starlette application."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypedDict

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Scope

from eldr_runtime.decode_profile import DecodeProfileBatch
from eldr_runtime.errors import InvalidMessage
from eldr_runtime.json_values import message_from_json, to_json_value
from eldr_runtime.router.data_plane import DataPlane
from eldr_runtime.router.errors import NoWorker, RouterError, error_body
from eldr_runtime.router.exchange import CHAT_COMPLETIONS, COMPLETIONS
from eldr_runtime.router.metrics import CONTENT_TYPE
from eldr_runtime.router.proxy import PROBE, GenerationEndpoint
from eldr_runtime.router.readiness import Readiness, generate_one_token
from eldr_runtime.router.router_process import RouterProcess, run_router_process
from eldr_runtime.router.settings import RouterSettings
from eldr_runtime.router.upstream import WorkerAddress

MODELS = "/v1/models"
MAX_PROFILE_BYTES = 16 << 20
_completions = GenerationEndpoint(COMPLETIONS)


class State(TypedDict):
    """What the lifespan makes and every request can read."""

    plane: DataPlane
    process: RouterProcess
    readiness: Readiness


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusPage:
    """What `/eldr/status` says."""

    router_id: str
    fleet: str
    generation_applied: int | None
    config_source: str
    config_problem: str | None
    in_flight: Mapping[str, int]
    prefill_in_flight: Mapping[str, int]
    n_inside: int
    dropped_events: int
    dropped_blobs: int
    n_telemetry_waiting: int
    decode_profiles: Mapping[str, int]
    requests: Mapping[str, int]
    routed_without_signature: Mapping[str, int]
    workers_scraped: tuple[str, ...]


def create_router(settings: RouterSettings, url: str | None = None) -> Starlette:
    """Return the application; `url` is where workers reach this router."""

    @asynccontextmanager
    async def lifespan(application: Starlette) -> AsyncIterator[State]:
        async with run_router_process(settings, url) as process:
            readiness = Readiness(
                process.plane.proof,
                fresh_seconds=settings.pace.probe_seconds,
                probe=lambda: _probe(process),
            )
            yield State(plane=process.plane, process=process, readiness=readiness)

    return Starlette(
        lifespan=lifespan,
        exception_handlers={HTTPException: _refuse_in_openai_shape},
        routes=[
            Route(COMPLETIONS, _completions, methods=["POST"]),
            Route(CHAT_COMPLETIONS, GenerationEndpoint(CHAT_COMPLETIONS), methods=["POST"]),
            Route(MODELS, _models),
            Route("/health", _alive),
            Route("/livez", _alive),
            Route("/readyz", _ready),
            Route("/metrics", _metrics),
            Route("/eldr/status", _status),
            Route("/v1/decode-profiles", _decode_profiles, methods=["POST"]),
        ],
    )


async def _alive(request: Request) -> Response:
    return PlainTextResponse("ok\n")


async def _ready(request: Request) -> Response:
    readiness: Readiness = request.state.readiness
    reason = await readiness.why_not()
    return (
        PlainTextResponse("ready\n") if reason is None else PlainTextResponse(f"{reason}\n", status_code=503)
    )


async def _metrics(request: Request) -> Response:
    process: RouterProcess = request.state.process
    return Response(process.metrics.to_text(), media_type=CONTENT_TYPE)


async def _models(request: Request) -> Response:
    try:
        data = await _ask_for_models(request.state.process, dict(request.headers))
    except RouterError as error:
        return Response(error.to_body(), status_code=error.status, media_type="application/json")
    return Response(data, media_type="application/json")


async def _decode_profiles(request: Request) -> Response:
    process: RouterProcess = request.state.process
    try:
        batch = message_from_json(DecodeProfileBatch, await _body_of(request))
    except InvalidMessage as error:
        problem = {
            "type": "about:blank", "title": "Invalid decode profiles", "status": 422, "detail": str(error),
            "field": error.field,
        }  # fmt: skip
        return JSONResponse(problem, status_code=422, media_type="application/problem+json")
    for profile in batch.profiles:
        process.telemetry.profile_arrived(profile)
    return Response(status_code=202)


async def _status(request: Request) -> Response:
    process: RouterProcess = request.state.process
    profiles = process.telemetry.profiles
    page = StatusPage(
        router_id=process.settings.router_id,
        fleet=process.settings.fleet,
        generation_applied=process.config.generation,
        config_source=process.config.source,
        config_problem=process.config.problem,
        in_flight=process.decode_load.by_worker(),
        prefill_in_flight=process.prefill_load.by_worker(),
        n_inside=process.plane.doors.n_inside,
        dropped_events=process.outbox.n_dropped_events,
        dropped_blobs=process.outbox.n_dropped_blobs,
        n_telemetry_waiting=process.outbox.n_waiting,
        decode_profiles={
            "joined": profiles.n_joined,
            "missing": profiles.n_missing,
            "unclaimed": profiles.n_unclaimed,
        },
        requests=dict(process.metrics.by_outcome),
        routed_without_signature=dict(process.metrics.by_unsigned_reason),
        workers_scraped=tuple(process.scrape.latest),
    )
    return JSONResponse(to_json_value(page))


async def _refuse_in_openai_shape(request: Request, error: Exception) -> Response:
    status, detail = (
        (error.status_code, error.detail) if isinstance(error, HTTPException) else (500, str(error))
    )
    body = error_body(f"{request.method} {request.url.path}: {detail}", "invalid_request_error", str(status))
    headers = error.headers if isinstance(error, HTTPException) else None
    return Response(body, status_code=status, media_type="application/json", headers=headers)


async def _body_of(request: Request) -> bytes:
    pieces = []
    n_bytes = 0
    async for piece in request.stream():
        n_bytes += len(piece)
        if n_bytes > MAX_PROFILE_BYTES:
            limit = f"at most {MAX_PROFILE_BYTES} bytes"
            raise InvalidMessage(field="body", value=f"over {MAX_PROFILE_BYTES} bytes", limit=limit)
        pieces.append(piece)
    return b"".join(pieces)


async def _ask_for_models(process: RouterProcess, headers: Mapping[str, str]) -> bytes:
    passed_on = {name: value for name, value in headers.items() if name == "authorization"}
    snapshot = process.config.snapshot
    if snapshot is None:
        raise NoWorker(process.config.why_none())
    failure: RouterError = NoWorker("no worker is ready")
    workers: list[WorkerAddress] = [*snapshot.decode.values(), *snapshot.prefill.values()]
    for worker in workers:
        if not process.reachability.reachable([worker.worker_id]):
            continue
        try:
            return await process.upstream.get(worker, MODELS, passed_on)
        except RouterError as error:
            failure = error
    raise failure


async def _probe(process: RouterProcess) -> str | None:
    """Send one token through both legs; the name of the model is what the workers call it."""
    try:
        models = json.loads(await _ask_for_models(process, {}))
        model = str(models["data"][0]["id"])
    except RouterError as error:
        return error.message
    except (ValueError, LookupError, TypeError):
        return "no worker says which model it serves"
    scope: Scope = {"type": "http", "headers": [], "state": {"plane": process.plane}, PROBE: True}
    return await generate_one_token(_completions, scope, model)
