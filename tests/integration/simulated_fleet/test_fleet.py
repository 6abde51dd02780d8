import asyncio

import aiohttp
import pytest
from aiohttp import web

from eldr_runtime.errors import InvalidConfig
from eldr_runtime.heartbeats import WorkerHeartbeat
from eldr_runtime.json_values import from_json_value
from eldr_runtime.latency_model import find_preset
from eldr_runtime.routing_config import WorkerEntry, WorkerRole, WorkerState
from eldr_runtime.simulated_fleet.decode_profiles import DecodeProfilePush
from eldr_runtime.simulated_fleet.decode_worker import DecodeSettings
from eldr_runtime.simulated_fleet.fleet import FleetSettings
from eldr_runtime.simulated_fleet.process import serve
from eldr_runtime.simulated_fleet.profile_pool import ProfilePool
from eldr_runtime.worker_registration import (
    ControlPlaneAddress,
    ControlPlaneMembership,
    LeaseAnswer,
    WorkerSoftware,
)


class FakeControlPlane:
    """Takes heartbeats and decode profiles, remembers them."""

    def __init__(self) -> None:
        self.beats: list[WorkerHeartbeat] = []
        self.keys: set[str | None] = set()
        self.profiles: list[dict[str, object]] = []
        self.is_down = False
        self.url = ""

    def application(self) -> web.Application:
        application = web.Application()
        application.add_routes(
            [
                web.post("/v1/fleets/toy/workers/heartbeat", self.take_beat),
                web.post("/v1/decode-profiles", self.take_profiles),
            ]
        )
        return application

    async def take_beat(self, request: web.Request) -> web.Response:
        if self.is_down:
            return web.Response(status=503)
        self.keys.add(request.headers.get("Authorization"))
        self.beats.append(WorkerHeartbeat.from_json(await request.read()))
        lease = {
            "worker_id": self.beats[-1].worker_id,
            "state": "ready",
            "lease_seconds": 10.0,
            "heartbeat_seconds": 0.02,
            "decode_profile_urls": [f"{self.url}/v1/decode-profiles"],
            "decode_profile_share": 1.0,
        }
        return web.json_response(lease)

    async def take_profiles(self, request: web.Request) -> web.Response:
        self.profiles += (await request.json())["profiles"]
        return web.Response(status=204)

    async def wait_for_beats(self, n_beats: int) -> None:
        async with asyncio.timeout(5):
            while len(self.beats) < n_beats:  # noqa: ASYNC110  the fake does not tell
                await asyncio.sleep(0.005)


def test_added_worker_serves_and_killed_worker_cuts_its_streams(run_fleet) -> None:
    async def scenario() -> None:
        async with run_fleet(n_decode=1) as running:
            workers_url = f"{running.control_url}/simulated/workers"
            async with running.session.post(workers_url, json={"role": "decode"}) as response:
                assert response.status == 201
                entry = from_json_value(WorkerEntry, await response.json())
            assert (entry.id, entry.role) == ("decode-01", WorkerRole.DECODE)
            stream = asyncio.create_task(read_all(running, "decode-01"))
            await asyncio.sleep(0.05)
            async with running.session.delete(f"{workers_url}/decode-01") as response:
                assert response.status == 204
            with pytest.raises(aiohttp.ClientError):
                await stream
            with pytest.raises(aiohttp.ClientConnectorError):
                await running.session.get(f"{entry.url}/health")
            assert b"[DONE]" in await read_all(running, "decode-00", tokens=5)
            assert [each.id for each in running.fleet.entries()] == ["prefill-00", "decode-00"]

    asyncio.run(scenario())


async def read_all(running, worker_id: str, tokens: int = 5000) -> bytes:
    async with running.stream(worker_id, tokens=tokens) as response:
        return await response.read()


def test_control_refuses_what_it_does_not_know(run_fleet) -> None:
    async def scenario() -> None:
        async with run_fleet() as running:
            workers_url = f"{running.control_url}/simulated/workers"
            async with running.session.delete(f"{workers_url}/decode-77") as response:
                assert response.status == 404
            async with running.session.post(workers_url, json={"role": "cook"}) as response:
                assert response.status == 400
                assert "cook" in (await response.json())["error"]["message"]
            async with running.session.get(f"{running.control_url}/simulated/status") as response:
                assert (await response.json())["in_flight"] == 0

    asyncio.run(scenario())


def test_workers_register_drain_and_vanish(run_fleet) -> None:
    async def scenario() -> None:
        plane = FakeControlPlane()
        leases: list[LeaseAnswer] = []
        async with (
            serve(plane.application(), "127.0.0.1", 0) as plane.url,
            aiohttp.ClientSession() as session,
            run_fleet() as running,
        ):
            address = ControlPlaneAddress(url=plane.url, fleet="toy", api_key="secret")
            software = WorkerSoftware(
                engine="toy", engine_version="1", plugin_version="2", model="toy-moe", kv_connector="none"
            )
            membership = ControlPlaneMembership(address, session, software=software, on_lease=leases.append)
            entry = running.fleet.entries()[-1]
            membership.join(entry)
            await plane.wait_for_beats(3)
            assert {beat.state for beat in plane.beats} == {WorkerState.READY}
            beat = plane.beats[0]
            assert (beat.worker_id, beat.role, beat.url) == (entry.id, WorkerRole.DECODE, entry.url)
            assert (beat.engine, beat.engine_version, beat.model) == ("toy", "1", "toy-moe")
            assert plane.keys == {"Bearer secret"}
            assert leases[0].decode_profile_urls == (f"{plane.url}/v1/decode-profiles",)
            plane.is_down = True
            await asyncio.sleep(0.05)
            plane.is_down = False
            await membership.drain(entry)
            assert plane.beats[-1].state is WorkerState.DRAINING
            membership.vanish(entry.id)
            await asyncio.sleep(0.05)
            n_beats = len(plane.beats)
            await asyncio.sleep(0.1)
            assert len(plane.beats) == n_beats

    asyncio.run(scenario())


def test_fleet_drains_only_when_its_requests_have_finished(run_fleet) -> None:
    async def scenario() -> None:
        async with run_fleet() as running:
            stream = asyncio.create_task(read_all(running, "decode-00", tokens=60))
            await asyncio.sleep(0.05)
            assert await running.fleet.drain(grace_seconds=5.0)
            assert b"[DONE]" in await stream

    asyncio.run(scenario())


def test_drain_gives_up_after_its_time(run_fleet) -> None:
    async def scenario() -> None:
        async with run_fleet() as running:
            stream = asyncio.create_task(read_all(running, "decode-00", tokens=20_000))
            await asyncio.sleep(0.05)
            assert not await running.fleet.drain(grace_seconds=0.1)
            with pytest.raises(aiohttp.ClientError):
                await stream

    asyncio.run(scenario())


def test_decode_profiles_arrive_with_whole_counts(run_fleet, pool: ProfilePool) -> None:
    async def scenario() -> None:
        plane = FakeControlPlane()
        async with serve(plane.application(), "127.0.0.1", 0) as plane.url, run_fleet() as running:
            running.push.aim([f"{plane.url}/v1/decode-profiles", "http://127.0.0.1:9/dead"], 1.0)
            task = asyncio.create_task(running.push.run())
            await read_all(running, "decode-00", tokens=25)
            async with asyncio.timeout(5):
                while not running.push.n_pushed:  # noqa: ASYNC110  nobody tells
                    await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        (profile,) = plane.profiles
        assert (profile["worker_id"], profile["steps"]) == ("decode-00", 25)
        assert profile["counts"]["covered"] == 25
        assert (running.push.n_pushed, running.push.n_dropped) == (1, 0)

    asyncio.run(scenario())


def test_profiles_without_an_address_are_not_drawn(pool: ProfilePool) -> None:
    push = DecodeProfilePush(pool)
    push.offer("decode-00", "r", 1, 10)
    assert (push.n_pushed, push.n_dropped) == (0, 0)


def test_profiles_beyond_the_queue_are_dropped_and_counted(pool: ProfilePool) -> None:
    push = DecodeProfilePush(pool)
    push.aim(["http://127.0.0.1:9"], 1.0)
    for number in range(510):
        push.offer("decode-00", f"r{number}", 1, 10)
    assert push.n_dropped == 10


def test_more_workers_than_ports_are_refused() -> None:
    decode = DecodeSettings(
        model="toy-moe",
        preset=find_preset("qwen3-30b-a3b-mi300x"),
        stream_interval_tokens=1,
        max_running=8,
    )
    with pytest.raises(InvalidConfig, match="n_decode is 999"):
        FleetSettings(n_prefill=1, n_decode=999, decode=decode)


def test_profiles_nobody_waits_for_any_more_are_dropped(pool) -> None:
    now = [0.0]
    push = DecodeProfilePush(pool, lambda: now[0])
    push.aim(["http://127.0.0.1:9"], 1.0)
    for number, at_seconds in enumerate((0.0, 0.5, 3.0, 3.0, 3.4)):
        now[0] = at_seconds
        push.offer("decode-00", f"r{number}", 1, 10)
    assert [finished.request_id for finished in push.next_batch(2)] == ["r1", "r2"]
    assert push.n_dropped == 1
    assert [finished.request_id for finished in push.next_batch(9)] == ["r3", "r4"]
    assert (push.next_batch(9), push.n_dropped) == ([], 1)
