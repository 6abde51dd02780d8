"""The life of one vLLM worker: started, tested, registered, drained, ended.

::

    starting -> probing -> ready -> draining -> ended
        |          |         |         |
        +----------+---------+---------+--> vLLM died: its status
                   +--> refused: the probe's reason
"""

import asyncio
import ctypes
import json
import os
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

import aiohttp

from eldr_runtime.errors import UnsupportedEngine
from eldr_runtime.json_values import to_json_value
from eldr_runtime.routing_config import WorkerEntry, WorkerState
from eldr_runtime.vllm_adapter.command_line import build_command, build_environment
from eldr_runtime.vllm_adapter.decode_profiles import ProfileTarget
from eldr_runtime.vllm_adapter.engine_client import EngineClient
from eldr_runtime.vllm_adapter.launch_settings import LaunchSettings
from eldr_runtime.vllm_adapter.self_test import VOUCHED_VERSION, is_vouched
from eldr_runtime.worker_registration import (
    ControlPlaneAddress,
    ControlPlaneMembership,
    LeaseAnswer,
    WorkerSoftware,
)

ENGINE = "vllm"
API_KEY = "ELDR_API_KEY"
POLL_SECONDS = 0.5
# Routers learn within a beat or two that a worker drains, and KV just made is fetched a moment later.
QUIET_SECONDS = 5.0
END_SECONDS = 30.0
PR_SET_PDEATHSIG = 1  # of Linux's prctl
LIBC = ctypes.CDLL(None)

T = TypeVar("T")
WriteFile = Callable[[Path, bytes], None]


class EngineEnded(Exception):
    """vLLM ended by itself.

    Attributes
    ----------
    status
        As a shell gives it: 128 and the signal's number where one ended it.
    """

    def __init__(self, status: int) -> None:
        self.status = status if status >= 0 else 128 - status
        super().__init__(f"vLLM ended with status {self.status}")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerProcessSettings:
    """A worker and what is around it; without a control plane it registers nowhere."""

    launch: LaunchSettings
    control_plane: ControlPlaneAddress | None
    start_seconds: float
    drain_seconds: float
    quiet_seconds: float = QUIET_SECONDS


class WorkerProcess:
    """One vLLM and its place in a fleet."""

    def __init__(
        self,
        settings: WorkerProcessSettings,
        session: aiohttp.ClientSession,
        *,
        say: Callable[[str], None],
        write_file: WriteFile,
    ) -> None:
        self._settings = settings
        self._launch = settings.launch
        self._session = session
        self._say = say
        self._write_file = write_file
        self._engine = EngineClient(session, settings.launch.own_url)
        self._target: ProfileTarget | None = None

    async def run(self, stopped: asyncio.Event) -> int:
        """Run until vLLM ends, whose status is returned, or `stopped` is set and requests have ended: 0.

        Raises `UnsupportedEngine` if the worker does not get ready or its experts cannot be trusted.
        """
        self._aim(ProfileTarget())
        async with _vllm(self._launch) as process:
            try:
                return await self._live(process, stopped)
            except EngineEnded as ended:
                self._say(str(ended))
                return ended.status

    async def _live(self, process: Process, stopped: asyncio.Event) -> int:
        stop = asyncio.create_task(stopped.wait())
        start = asyncio.create_task(_while_alive(process, self._get_ready()))
        try:
            await asyncio.wait({stop, start}, return_when=asyncio.FIRST_COMPLETED)
            if not start.done():
                return 0
            membership = await start
            await _while_alive(process, stopped.wait())
            await _while_alive(process, self._drain(membership))
        finally:
            stop.cancel()
            start.cancel()
        return 0

    async def _get_ready(self) -> ControlPlaneMembership | None:
        """Wait for vLLM, try it, register it."""
        try:
            async with asyncio.timeout(self._settings.start_seconds):
                while not await self._engine.is_healthy():  # noqa: ASYNC110  vLLM calls nobody when it is up
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError as error:
            limit_seconds = self._settings.start_seconds
            raise UnsupportedEngine(f"vLLM was not healthy after {limit_seconds:g} s") from error
        engine_version = await self._engine.version()
        await self._engine.probe(self._launch.served_name, is_prefill=self._launch.is_prefill)
        self._say(f"worker {self._launch.worker_id} passed its self-test: {self._launch.url}")
        if not is_vouched(engine_version):
            self._say(
                f"vLLM {engine_version}: its counts were compared with an independent computation in "
                f"{VOUCHED_VERSION} alone; here the self-test is all that speaks for them"
            )
        return self._register(engine_version)

    def _register(self, engine_version: str) -> ControlPlaneMembership | None:
        address = self._settings.control_plane
        if address is None:
            return None
        software = WorkerSoftware(
            engine=ENGINE,
            engine_version=engine_version,
            plugin_version=version("eldr"),
            model=self._launch.served_name,
            kv_connector=self._launch.connector.value,
        )
        membership = ControlPlaneMembership(
            address, self._session, software=software, on_lease=self._take_lease
        )
        membership.join(self._entry())
        return membership

    async def _drain(self, membership: ControlPlaneMembership | None) -> None:
        """Say that the worker takes no more, and wait until it has been idle for a while."""
        if membership is not None:
            await membership.drain(self._entry())
        self._say(f"worker {self._launch.worker_id} drains")
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + self._settings.drain_seconds
        idle_since = loop.time()
        while loop.time() - idle_since < self._settings.quiet_seconds:
            if loop.time() > ends_at:
                self._say(f"requests were in flight after {self._settings.drain_seconds:g} s and were cut")
                break
            await asyncio.sleep(min(POLL_SECONDS, self._settings.quiet_seconds))
            if await self._engine.n_in_flight() != 0:
                idle_since = loop.time()
        if membership is not None:
            membership.vanish(self._launch.worker_id)

    def _entry(self) -> WorkerEntry:
        return WorkerEntry(
            id=self._launch.worker_id,
            role=self._launch.role,
            url=self._launch.url,
            state=WorkerState.READY,
            capacity=self._launch.capacity,
        )

    def _take_lease(self, lease: LeaseAnswer) -> None:
        self._aim(ProfileTarget(urls=lease.decode_profile_urls, share=lease.decode_profile_share))

    def _aim(self, target: ProfileTarget) -> None:
        """Write the file the plugin looks at; a prefill worker has no decode profiles."""
        if not self._launch.is_prefill and target != self._target:
            self._target = target
            self._write_file(self._launch.profile_file, json.dumps(to_json_value(target)).encode())


@asynccontextmanager
async def _vllm(launch: LaunchSettings) -> AsyncIterator[Process]:
    """Run vLLM in a process group of its own while the block runs; it never sees the control plane's key."""
    inherited = {name: value for name, value in os.environ.items() if name != API_KEY}
    process = await asyncio.create_subprocess_exec(
        *build_command(launch),
        env={**inherited, **build_environment(launch, inherited)},
        stdin=asyncio.subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=_end_with_parent,
    )
    try:
        yield process
    finally:
        await _end(process)


def _end_with_parent() -> None:
    """Let the kernel end vLLM where the launcher is killed, and cannot."""
    LIBC.prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM))


async def _end(process: Process) -> None:
    """End vLLM and the processes it started: those that outlive it would hold the device's memory."""
    if process.returncode is None:
        process.terminate()
        try:
            async with asyncio.timeout(END_SECONDS):
                await process.wait()
        except TimeoutError:
            pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    await process.wait()


async def _while_alive(process: Process, work: Awaitable[T]) -> T:
    """Do some work; raise `EngineEnded` as soon as vLLM has ended."""
    task = asyncio.ensure_future(work)
    end = asyncio.create_task(process.wait())
    try:
        await asyncio.wait({task, end}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise EngineEnded(await end)
        return await task
    finally:
        task.cancel()
        end.cancel()


async def run_worker(
    settings: WorkerProcessSettings,
    stopped: asyncio.Event,
    *,
    say: Callable[[str], None],
    write_file: WriteFile,
) -> int:
    """Run one worker to its end and return the status to end with, as `WorkerProcess.run` says."""
    async with aiohttp.ClientSession() as session:
        return await WorkerProcess(settings, session, say=say, write_file=write_file).run(stopped)
