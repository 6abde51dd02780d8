"""What a router does again and again beside serving; a fault in one is logged and does not end it."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

JITTER_SHARE = 0.1
_log = logging.getLogger(__name__)


class Background:
    """Keeps repeating tasks alive until it is stopped."""

    def __init__(self, pause_after_fault_seconds: float = 1.0) -> None:
        self._pause_after_fault_seconds = pause_after_fault_seconds
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopping = False

    def repeat(
        self,
        step: Callable[[], Awaitable[None]],
        every_seconds: float,
        *,
        wake: asyncio.Event | None = None,
        pause_seconds: float = 0.0,
    ) -> None:
        """Run a step every so often, and at once when `wake` is set."""
        if self._is_stopping:
            return
        task = asyncio.create_task(_repeat(step, every_seconds, wake, pause_seconds))
        self._tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if task.cancelled() or (error := task.exception()) is None:
                return
            _log.error("a fault in the background; starting it again", exc_info=error)
            self.repeat(step, every_seconds, wake=wake, pause_seconds=self._pause_after_fault_seconds)

        task.add_done_callback(ended)

    async def stop(self) -> None:
        """End every task and wait until it has ended."""
        self._is_stopping = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _repeat(
    step: Callable[[], Awaitable[None]],
    every_seconds: float,
    wake: asyncio.Event | None,
    pause_seconds: float,
) -> None:
    await asyncio.sleep(pause_seconds)
    while True:
        await step()
        # Routers started together must not ask together for ever.
        wait_seconds = every_seconds * random.uniform(1 - JITTER_SHARE, 1 + JITTER_SHARE)
        if wake is None:
            await asyncio.sleep(wait_seconds)
            continue
        try:
            async with asyncio.timeout(wait_seconds):
                await wake.wait()
        except TimeoutError:
            continue
        wake.clear()
