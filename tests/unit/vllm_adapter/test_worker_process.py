"""The launcher's states against a process that takes vLLM's command line."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import web

from eldr_runtime.errors import UnsupportedEngine
from eldr_runtime.heartbeats import SelfTest, WorkerHeartbeat
from eldr_runtime.routing_config import WorkerRole, WorkerState
from eldr_runtime.vllm_adapter.worker_process import WorkerProcessSettings, run_worker
from eldr_runtime.worker_registration import ControlPlaneAddress

FAKE = Path(__file__).parents[2] / "fakes" / "fake_vllm_process.py"
ROUTER_URL = "http://127.0.0.1:1/v1/decode-profiles"


class Plane:
    """Takes heartbeats of one fleet."""

    def __init__(self) -> None:
        self.beats: list[WorkerHeartbeat] = []
        self.url = ""
        self.on_beat: Callable[[], None] = lambda: None

    async def __aenter__(self) -> "Plane":
        application = web.Application()
        application.router.add_post("/v1/fleets/toy/workers/heartbeat", self._take)
        self._runner = web.AppRunner(application)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Bearer secret"
        self.beats.append(WorkerHeartbeat.from_json(await request.read()))
        self.on_beat()
        lease = {
            "heartbeat_seconds": 0.05,
            "decode_profile_urls": [ROUTER_URL],
            "decode_profile_share": 0.5,
        }
        return web.json_response(lease)


@pytest.fixture
def settings_for(make_launch, tmp_path: Path):
    """Settings of a worker whose interpreter starts the fake."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE} "$@"\n')
    python.chmod(0o755)

    def make(plane: Plane | None, role: WorkerRole = WorkerRole.DECODE, **changes) -> WorkerProcessSettings:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        launch = make_launch(port=port, role=role, python=python, profile_file=tmp_path / "profiles.json")
        address = plane and ControlPlaneAddress(url=plane.url, fleet="toy", api_key="secret")
        times = {"start_seconds": 30.0, "drain_seconds": 5.0, "quiet_seconds": 0.2, **changes}
        return WorkerProcessSettings(launch=launch, control_plane=address, **times)

    return make


def run(settings: WorkerProcessSettings, stopped: asyncio.Event, said: list[str]):
    return run_worker(settings, stopped, say=said.append, write_file=Path.write_bytes)


def test_worker_is_tested_registered_and_drained(settings_for, tmp_path: Path) -> None:
    async def scenario() -> None:
        said: list[str] = []
        stopped = asyncio.Event()
        async with Plane() as plane:
            plane.on_beat = lambda: stopped.set() if len(plane.beats) == 3 else None
            assert await run(settings_for(plane), stopped, said) == 0
            assert (plane.beats[0].state, plane.beats[-1].state) == (WorkerState.READY, WorkerState.DRAINING)
            beat = plane.beats[0]
            assert (beat.engine, beat.engine_version, beat.model) == ("vllm", "0.32.0", "tiny")
            assert (beat.kv_connector, beat.self_test, beat.capacity) == ("nixl", SelfTest.PASSED, 16)
        target = json.loads((tmp_path / "profiles.json").read_text())
        assert target == {"urls": [ROUTER_URL], "share": 0.5}
        assert [line.split()[2] for line in said] == ["passed", "drains"]

    asyncio.run(scenario())


def test_prefill_worker_of_another_version_says_what_speaks_for_it(
    settings_for, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_VLLM_VERSION", "0.33.1")

    async def scenario() -> None:
        said: list[str] = []
        stopped = asyncio.Event()
        async with Plane() as plane:
            plane.on_beat = stopped.set
            assert await run(settings_for(plane, WorkerRole.PREFILL), stopped, said) == 0
        assert "0.33.1" in said[1]
        assert "0.32 alone" in said[1]

    asyncio.run(scenario())


def test_failed_self_test_refuses_with_its_reason(settings_for, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_VLLM", "no_counts")

    async def scenario() -> None:
        async with Plane() as plane:
            with pytest.raises(UnsupportedEngine, match="self-test failed: no kv_transfer_params"):
                await run(settings_for(plane), asyncio.Event(), [])
            assert plane.beats == []

    asyncio.run(scenario())


def test_worker_ends_with_the_status_of_vllm(settings_for, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_VLLM", "refuse")
    assert asyncio.run(run(settings_for(None), asyncio.Event(), [])) == 3


def test_worker_ends_when_a_signal_ends_vllm(settings_for) -> None:
    async def scenario() -> None:
        async with Plane() as plane:
            settings = settings_for(plane)
            plane.on_beat = lambda: os.kill(_fake_vllm_of_this_process(), signal.SIGKILL)
            assert await run(settings, asyncio.Event(), []) == 128 + signal.SIGKILL

    asyncio.run(scenario())


def _fake_vllm_of_this_process() -> int:
    """Return its id among the children: a database server that other tests started may be one too."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    (found,) = (
        child for child in children if b"fake_vllm_process" in Path(f"/proc/{child}/cmdline").read_bytes()
    )
    return int(found)


def test_requests_that_never_end_are_cut_after_the_drain_time(
    settings_for, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_VLLM", "busy")

    async def scenario() -> None:
        said: list[str] = []
        stopped = asyncio.Event()
        async with Plane() as plane:
            plane.on_beat = stopped.set
            assert await run(settings_for(plane, drain_seconds=0.5), stopped, said) == 0
        assert "were cut" in said[-1]

    asyncio.run(scenario())


def test_stop_while_vllm_starts_ends_it(settings_for) -> None:
    async def scenario() -> None:
        stopped = asyncio.Event()
        stopped.set()
        assert await run(settings_for(None), stopped, []) == 0

    asyncio.run(scenario())


def test_worker_that_never_gets_healthy_is_refused(settings_for) -> None:
    with pytest.raises(UnsupportedEngine, match="not healthy after"):
        asyncio.run(run(settings_for(None, start_seconds=0.05), asyncio.Event(), []))
