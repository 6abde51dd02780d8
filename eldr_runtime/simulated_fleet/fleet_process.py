"""A whole fleet process: workers, their registration, decode profiles, the control port, the end."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import aiohttp

from eldr_runtime.json_values import to_json_value
from eldr_runtime.routing_config import WorkerEntry
from eldr_runtime.simulated_fleet.decode_profiles import DecodeProfilePush
from eldr_runtime.simulated_fleet.fleet import Fleet, FleetSettings, Membership, NoMembership
from eldr_runtime.simulated_fleet.fleet_control import build_fleet_control
from eldr_runtime.simulated_fleet.process import serve, stop_event, wait_for
from eldr_runtime.simulated_fleet.profile_pool import ProfilePool
from eldr_runtime.worker_registration import (
    ControlPlaneAddress,
    ControlPlaneMembership,
    LeaseAnswer,
    WorkerSoftware,
)

ENGINE = "simulated-vllm"
KV_CONNECTOR = "simulated"
WriteFile = Callable[[Path, bytes], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetProcessSettings:
    """A fleet and what is around it. Without a control plane, profiles go to `decode_profile_urls`."""

    fleet: FleetSettings
    control_port: int
    control_plane: ControlPlaneAddress | None
    decode_profile_urls: tuple[str, ...]
    decode_profile_share: float
    workers_file: Path | None
    duration_seconds: float | None
    drain_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetStarted:
    """What a started fleet says of itself."""

    control_url: str
    model: str
    workers: tuple[WorkerEntry, ...]


async def run_fleet(
    settings: FleetProcessSettings,
    pool: ProfilePool,
    *,
    on_started: Callable[[FleetStarted], None],
    write_file: WriteFile,
) -> bool:
    """Run until a signal or the end of the time, then drain; False if requests were cut at the end."""
    stopped = stop_event()
    push = DecodeProfilePush(pool)
    push.aim(settings.decode_profile_urls, settings.decode_profile_share)
    async with _membership(settings, push) as membership, _running(push):
        fleet = Fleet(settings.fleet, pool, membership=membership, on_decode_finished=push.offer)
        if settings.workers_file is not None:
            path = settings.workers_file
            fleet.listen(lambda: write_file(path, workers_document(fleet.entries())))
        async with serve(
            build_fleet_control(fleet, push), settings.fleet.host, settings.control_port
        ) as control_url:
            try:
                await fleet.start()
                model = settings.fleet.decode.model
                on_started(FleetStarted(control_url=control_url, model=model, workers=fleet.entries()))
                await wait_for(stopped, settings.duration_seconds)
            finally:
                is_empty = await fleet.drain(settings.drain_seconds)
    return is_empty


def workers_document(entries: tuple[WorkerEntry, ...]) -> bytes:
    """Return the worker list as a JSON file for a router without a control plane."""
    return json.dumps(to_json_value(entries), indent=2).encode() + b"\n"


@asynccontextmanager
async def _membership(settings: FleetProcessSettings, push: DecodeProfilePush) -> AsyncIterator[Membership]:
    if settings.control_plane is None:
        yield NoMembership()
        return

    def on_lease(lease: LeaseAnswer) -> None:
        if lease.decode_profile_urls:
            push.aim(lease.decode_profile_urls, lease.decode_profile_share)
        else:
            push.aim(settings.decode_profile_urls, settings.decode_profile_share)

    own_version = version("eldr")
    software = WorkerSoftware(
        engine=ENGINE,
        engine_version=own_version,
        plugin_version=own_version,
        model=settings.fleet.decode.model,
        kv_connector=KV_CONNECTOR,
    )
    async with aiohttp.ClientSession() as session:
        yield ControlPlaneMembership(settings.control_plane, session, software=software, on_lease=on_lease)


@asynccontextmanager
async def _running(push: DecodeProfilePush) -> AsyncIterator[None]:
    task = asyncio.create_task(push.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
