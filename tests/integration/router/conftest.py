import asyncio
import importlib.util
import json
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import aiohttp
import numpy as np
import pytest

from eldr_runtime.centroid_version import CentroidVersion, VersionOrigin, to_bytes
from eldr_runtime.count_codec import ExpertCounts, encode_counts
from eldr_runtime.model_shape import ModelShape
from eldr_runtime.router.application import create_router
from eldr_runtime.router.deadline import Timeouts
from eldr_runtime.router.router_process import RouterProcess
from eldr_runtime.router.server import build_server, open_socket
from eldr_runtime.router.settings import Bounds, Pace, RouterSettings
from eldr_runtime.signature import SignatureTransform, TransformName

Json = dict[str, Any]
FLEET = "tiny-fleet"
API_KEY = "eldr_test_secret"
SHAPE = ModelShape(model="tiny", n_layers=2, n_experts=4, top_k=1)
TIMEOUTS = Timeouts(
    connect_seconds=1.0,
    prefill_seconds=5.0,
    first_byte_seconds=5.0,
    between_chunks_seconds=5.0,
    total_seconds=10.0,
)
PACE = Pace(
    config_poll_seconds=0.05,
    heartbeat_seconds=0.1,
    telemetry_seconds=0.05,
    scrape_seconds=0.1,
    stop_seconds=2.0,
    unreachable_seconds=0.3,
    decode_profile_wait_seconds=0.5,
    control_plane_timeout_seconds=2.0,
)


def _fake(name: str) -> ModuleType:
    path = Path(__file__).parents[2] / "fakes" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"eldr_fakes_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


fake_vllm = _fake("fake_vllm")
fake_control_plane = _fake("fake_control_plane")


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"use_uvloop": True}


def make_counts(expert: int, *, tokens: int = 6, covered: int = 6) -> Json:
    counts = np.zeros(SHAPE.counts_shape, dtype=np.uint32)
    counts[:, expert] = covered
    return encode_counts(ExpertCounts(shape=SHAPE, counts=counts, tokens=tokens, covered=covered))


def make_version(seed: int = 1) -> CentroidVersion:
    """Make two centroids: prompts that use expert 0, and prompts that use expert 3."""
    centroids = np.zeros((2, 8), dtype=np.float32)
    centroids[0, [0, 4]] = centroids[1, [3, 7]] = np.sqrt(0.5)
    return CentroidVersion(
        shape=SHAPE,
        transform=SignatureTransform(
            name=TransformName.COUNT,
            weights=np.ones(SHAPE.counts_shape, dtype=np.float32),
            layer_mask=np.ones(2, dtype=np.bool_),
        ),
        centroids=centroids,
        mean_use=np.full(SHAPE.counts_shape, 0.25, dtype=np.float32),
        seed=seed,
        origin=VersionOrigin.CALIBRATION,
        parent_hash=None,
        n_requests=10,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


class FakeFleet:
    """Two prefill and two decode workers and a control plane that lists them."""

    def __init__(self) -> None:
        self.kv = fake_vllm.KvStore()
        self.prefill = [fake_vllm.FakePrefillWorker(f"prefill-{index}", self.kv) for index in range(2)]
        self.decode = [fake_vllm.FakeDecodeWorker(f"decode-{index}", self.kv) for index in range(2)]
        self.control_plane = fake_control_plane.FakeControlPlane(FLEET, API_KEY)

    @property
    def workers(self) -> list[Any]:
        return [*self.prefill, *self.decode]

    async def start(self) -> None:
        await asyncio.gather(*(each.start() for each in [*self.workers, self.control_plane]))
        self.publish()

    async def stop(self) -> None:
        for worker in self.workers:
            worker.hold = None
        await asyncio.gather(*(each.stop() for each in [*self.workers, self.control_plane]))

    def publish(self, version: CentroidVersion | None = None, **changes: object) -> None:
        """Give out the next generation, with a version if one is given."""
        config = self.control_plane.config
        reference = None
        if version is not None:
            content_hash = version.content_hash
            self.control_plane.artifacts[content_hash] = to_bytes(version)
            url = f"/v1/fleets/{FLEET}/artifacts/{content_hash}"
            reference = {"id": "v1", "number": 1, "content_hash": content_hash, "artifact_url": url}
        self.control_plane.config = {
            "v": 1,
            "fleet": FLEET,
            "generation": 1 if config is None else config["generation"] + 1,
            "issued_at": "2026-01-01T00:00:00Z",
            "model": {"id": "tiny", "layers": 2, "experts": 4, "top_k": 1},
            "version": reference,
            "arms": [{"name": "live", "policy": "round_robin"}],
            "arm_schedule": {"seed": 1, "window_seconds": 60, "washout_seconds": 0, "kind": "single"},
            "workers": [worker.to_json() for worker in self.workers],
            "limits": {
                "event_sample_share": 1.0,
                "signature_sample_share": 1.0,
                "decode_profile_share": 0.0,
                "metrics_window_seconds": 1.0,
            },
            **changes,
        }

    def prefill_says(self, message: object) -> None:
        for worker in self.prefill:
            worker.counts = message

    def worker(self, worker_id: str) -> Any:
        return next(worker for worker in self.workers if worker.worker_id == worker_id)

    def received(self, role: str) -> list[Any]:
        return [each for worker in self.workers if worker.role == role for each in worker.received]

    @property
    def generation(self) -> int:
        return int(self.control_plane.config["generation"])


class RunningRouter:
    """A router under test, its address, and a session to call it with."""

    def __init__(
        self, url: str, process: RouterProcess, session: aiohttp.ClientSession, stop: Callable[[], Any]
    ) -> None:
        self.url = url
        self.process = process
        self.session = session
        self.stop = stop

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    async def status(self) -> Json:
        async with self.session.get(f"{self.url}/eldr/status") as response:
            return await response.json()

    async def complete(self, body: Json | None = None, **fields: object) -> tuple[int, Any]:
        """Send a completion that is not streamed; return status and document."""
        document = {"model": "tiny", "prompt": "hello", "max_tokens": 4, **(body or {}), **fields}
        async with self.session.post(f"{self.url}/v1/completions", json=document) as response:
            return response.status, await response.json(content_type=None)

    async def stream(self, path: str = "/v1/completions", **fields: object) -> tuple[int, bytes]:
        """Send a streamed request; return status and all bytes."""
        prompt = {"messages": [{"role": "user", "content": "hi"}]} if "chat" in path else {"prompt": "hello"}
        document = {"model": "tiny", "max_tokens": 4, "stream": True, **prompt, **fields}
        async with self.session.post(self.url + path, json=document) as response:
            return response.status, await response.read()

    async def open_raw(self, *, path: str = "/v1/completions", **fields: object) -> Any:
        """Send a request on a bare connection, which the test can close when it likes; return its ends."""
        document = {"model": "tiny", "prompt": "hello", "max_tokens": 4, "stream": True, **fields}
        data = json.dumps(document).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = f"POST {path} HTTP/1.1\r\nHost: r\r\nContent-Length: {len(data)}\r\n\r\n"
        writer.write(head.encode() + data)
        await writer.drain()
        return reader, writer

    def home(self, prompt: str = "hello") -> str:
        """Return the prefill worker that a prompt goes to while all are idle."""
        home = self.process.config.snapshot.ring.home(prompt.encode())
        assert home is not None
        return home

    async def ended(self, n_requests: int) -> Json:
        """Wait until so many requests have ended; nothing may be in flight then, nor counted twice."""
        by_outcome = self.process.metrics.by_outcome
        await eventually(lambda: by_outcome.total() >= n_requests)
        assert by_outcome.total() == n_requests
        self.assert_nothing_in_flight()
        return dict(by_outcome)

    def assert_nothing_in_flight(self) -> None:
        assert set(self.process.decode_load.by_worker().values()) <= {0}
        assert set(self.process.prefill_load.by_worker().values()) <= {0}
        assert self.process.plane.doors.n_inside == 0


async def eventually(claim: Callable[[], bool], within_seconds: float = 3.0) -> None:
    """Wait until a claim holds; fail with it if it does not in time."""
    async with asyncio.timeout(within_seconds):
        while not claim():  # noqa: ASYNC110  nothing to wait on but the claim itself
            await asyncio.sleep(0.01)


@asynccontextmanager
async def run_router(settings: RouterSettings) -> AsyncIterator[RunningRouter]:
    listener = open_socket("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    application = create_router(settings, url)
    server = build_server(application, settings.pace.stop_seconds)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    await eventually(lambda: server.started or serving.done())

    async def stop() -> None:
        server.should_exit = True
        await serving

    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=15)) as session:
        try:
            yield RunningRouter(url, server.lifespan.state["process"], session, stop)
        finally:
            await stop()


@pytest.fixture
def counts_on() -> Callable[..., Json]:
    return make_counts


@pytest.fixture
def new_version() -> Callable[..., CentroidVersion]:
    return make_version


@pytest.fixture(name="eventually")
def _eventually() -> Callable[..., Any]:
    return eventually


@pytest.fixture
async def fleet() -> AsyncIterator[FakeFleet]:
    fleet = FakeFleet()
    await fleet.start()
    yield fleet
    await fleet.stop()


@pytest.fixture
def settings(fleet: FakeFleet, tmp_path: Path) -> RouterSettings:
    return RouterSettings(
        control_plane_url=fleet.control_plane.url,
        fleet=FLEET,
        data_dir=tmp_path / "router",
        router_id="router-0",
        api_key=API_KEY,
        timeouts=TIMEOUTS,
        pace=PACE,
        bounds=Bounds(max_body_bytes=100_000),
    )


@pytest.fixture
async def start_router(settings: RouterSettings) -> AsyncIterator[Callable[..., Any]]:
    """Start a router with changed settings; it is stopped at the end of the test."""
    async with AsyncExitStack() as stack:

        async def start(**changes: object) -> RunningRouter:
            return await stack.enter_async_context(run_router(replace(settings, **changes)))

        yield start


@pytest.fixture
async def router(start_router: Callable[..., Any]) -> RunningRouter:
    return await start_router()


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
