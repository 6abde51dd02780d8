"""A whole load generator process: the load, its control port, the end on a signal."""

import asyncio
from collections.abc import Callable

from eldr_runtime.simulated_fleet.load_control import build_load_control
from eldr_runtime.simulated_fleet.load_generator import LoadGenerator, LoadSettings
from eldr_runtime.simulated_fleet.load_statistics import LoadSummary
from eldr_runtime.simulated_fleet.process import serve, stop_event
from eldr_runtime.simulated_fleet.traffic_mix import TrafficMix


async def run_load(
    settings: LoadSettings,
    mix: TrafficMix,
    *,
    host: str,
    control_port: int,
    on_started: Callable[[str], None],
) -> LoadSummary:
    """Send the load until its time is over or a signal comes, let requests finish, return the figures."""
    stopped = stop_event()
    generator = LoadGenerator(settings, mix)
    async with serve(build_load_control(generator), host, control_port) as control_url:
        on_started(control_url)
        waiter = asyncio.create_task(_stop_when(stopped, generator))
        try:
            await generator.run()
        finally:
            waiter.cancel()
            await asyncio.gather(waiter, return_exceptions=True)
    return generator.statistics.summary()


async def _stop_when(stopped: asyncio.Event, generator: LoadGenerator) -> None:
    await stopped.wait()
    generator.stop()
