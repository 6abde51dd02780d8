"""A small fleet on free ports, and a client that does what a router does."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from itertools import cycle

import aiohttp
import pytest
from aiohttp import web

from eldr_runtime.latency_model import LatencyModel, LatencyPreset
from eldr_runtime.model_shape import ModelShape
from eldr_runtime.simulated_fleet.decode_profiles import DecodeProfilePush
from eldr_runtime.simulated_fleet.decode_worker import DecodeSettings, DecodeWorker
from eldr_runtime.simulated_fleet.fleet import Fleet, FleetSettings
from eldr_runtime.simulated_fleet.fleet_control import build_fleet_control
from eldr_runtime.simulated_fleet.process import serve
from eldr_runtime.simulated_fleet.profile_pool import ProfilePool, pool_of_workload
from eldr_runtime.simulation.workload import WorkloadSettings, generate_profiles

SHAPE = ModelShape(model="toy-moe", n_layers=3, n_experts=8, top_k=2)
PRESET = LatencyPreset(
    name="toy",
    model=LatencyModel(t0_ms=2.0, per_expert_ms=0.5, per_request_ms=0.25, per_kv_token_ms=0.0),
    shape=SHAPE,
    kv_bytes_per_token=1e5,
    expert_bytes=1e6,
    source="made up for tests",
    uncertainty_percent=None,
)
WORKER_LOST = b'data: {"error": {"message": "worker lost", "code": 502}}\n\n'
HAND_OFF = {
    "do_remote_prefill": True,
    "do_remote_decode": False,
    "remote_engine_id": "elsewhere",
    "remote_block_ids": [1],
    "remote_host": "127.0.0.1",
    "remote_port": 1,
}


@pytest.fixture(scope="session")
def pool() -> ProfilePool:
    settings = WorkloadSettings(shape=SHAPE, n_topics=3, n_profiles=12, prompt_tokens=40, output_tokens=30)
    return pool_of_workload(generate_profiles(settings, seed=2))


@dataclass
class RunningFleet:
    """A fleet in this event loop and a client session."""

    fleet: Fleet
    session: aiohttp.ClientSession
    control_url: str
    push: DecodeProfilePush
    tasks: set[asyncio.Task[object]] = field(default_factory=set)

    def url(self, worker_id: str) -> str:
        return self.fleet.worker(worker_id).server.url

    def decode_worker(self, worker_id: str = "decode-00") -> DecodeWorker:
        worker = self.fleet.worker(worker_id)
        assert isinstance(worker, DecodeWorker)
        return worker

    async def post(self, worker_id: str, path: str, body: object) -> tuple[int, dict[str, object]]:
        async with self.session.post(self.url(worker_id) + path, json=body) as response:
            return response.status, json.loads(await response.text() or "{}")

    async def show_fault(self, worker_id: str, **fault: object) -> None:
        status, _ = await self.post(worker_id, "/simulated/faults", fault)
        assert status == 200

    async def wait_until_idle(self) -> None:
        async with asyncio.timeout(5):
            while self.fleet.n_in_flight():  # noqa: ASYNC110  nothing of the fleet tells when
                await asyncio.sleep(0.0005)

    def stream(
        self, worker_id: str = "decode-00", *, tokens: int = 10, profile: int = 3
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        body = {
            "prompt": f"profile {profile}",
            "max_tokens": tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
            "kv_transfer_params": HAND_OFF,
        }
        return self.session.post(f"{self.url(worker_id)}/v1/completions", json=body)


RunFleet = Callable[..., AbstractAsyncContextManager[RunningFleet]]


@pytest.fixture(scope="session")
def run_fleet(pool: ProfilePool) -> RunFleet:
    @asynccontextmanager
    async def run(n_prefill: int = 1, n_decode: int = 1, interval: int = 4) -> AsyncIterator[RunningFleet]:
        decode = DecodeSettings(
            model=SHAPE.model, preset=PRESET, stream_interval_tokens=interval, max_running=16
        )
        settings = FleetSettings(n_prefill=n_prefill, n_decode=n_decode, decode=decode)
        push = DecodeProfilePush(pool)
        fleet = Fleet(settings, pool, on_decode_finished=push.offer)
        timeout = aiohttp.ClientTimeout(total=10)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            serve(build_fleet_control(fleet, push), "127.0.0.1", 0) as control_url,
        ):
            await fleet.start()
            try:
                yield RunningFleet(fleet=fleet, session=session, control_url=control_url, push=push)
            finally:
                await fleet.close()

    return run


@pytest.fixture(scope="session")
def serve_router() -> Callable[[RunningFleet], AbstractAsyncContextManager[str]]:
    """Serve a router that takes workers in turn: both legs, nothing else."""

    def start(running: RunningFleet) -> AbstractAsyncContextManager[str]:
        entries = running.fleet.entries()
        prefill = cycle([entry.url for entry in entries if entry.role.value == "prefill"])
        decode = cycle([entry.url for entry in entries if entry.role.value == "decode"])

        async def complete(request: web.Request) -> web.StreamResponse:
            body = await request.json()
            first = {
                **body,
                "stream": False,
                "max_tokens": 1,
                "kv_transfer_params": {"do_remote_decode": True},
            }
            del first["stream_options"]
            async with running.session.post(f"{next(prefill)}/v1/completions", json=first) as answer:
                hand_off = (await answer.json())["kv_transfer_params"]
            hand_off.pop("eldr", None)
            second = {**body, "kv_transfer_params": hand_off}
            async with running.session.post(f"{next(decode)}/v1/completions", json=second) as answer:
                response = web.StreamResponse(status=answer.status)
                await response.prepare(request)
                try:
                    async for data in answer.content.iter_any():
                        await response.write(data)
                except aiohttp.ClientPayloadError:
                    await response.write(WORKER_LOST)
                await response.write_eof()
            return response

        application = web.Application()
        application.add_routes([web.post("/v1/completions", complete)])
        return serve(application, "127.0.0.1", 0)

    return start
