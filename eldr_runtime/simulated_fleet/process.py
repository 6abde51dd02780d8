"""What both processes, fleet and load generator, do around their work: a control port, an end on a signal."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web


def stop_event() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    return stopped


async def wait_for(stopped: asyncio.Event, seconds: float | None) -> None:
    """Return when the event is set or, where given, the time is over."""
    try:
        async with asyncio.timeout(seconds):
            await stopped.wait()
    except TimeoutError:
        return


@asynccontextmanager
async def serve(application: web.Application, host: str, port: int) -> AsyncIterator[str]:
    """Serve an application while the block runs; yields its base address."""
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield f"http://{host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
