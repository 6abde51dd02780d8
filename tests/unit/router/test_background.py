import asyncio
import logging

import pytest

from eldr_runtime.router.background import Background


def test_a_fault_is_logged_and_the_step_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    n_runs = 0

    async def main() -> None:
        went_on = asyncio.Event()

        async def step() -> None:
            nonlocal n_runs
            n_runs += 1
            if n_runs == 2:
                raise RuntimeError("a fault")
            if n_runs == 4:
                went_on.set()

        background = Background(pause_after_fault_seconds=0.0)
        background.repeat(step, 0.001)
        async with asyncio.timeout(5):
            await went_on.wait()
        await background.stop()

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
    assert n_runs >= 4
    assert [record.message for record in caplog.records] == ["a fault in the background; starting it again"]


def test_it_wakes_at_once_and_stops_for_good() -> None:
    n_runs = 0

    async def main() -> None:
        nonlocal n_runs
        wake = asyncio.Event()
        ran = asyncio.Event()

        async def step() -> None:
            nonlocal n_runs
            n_runs += 1
            ran.set()

        background = Background()
        background.repeat(step, 3600.0, wake=wake)
        for _ in range(3):
            async with asyncio.timeout(5):
                await ran.wait()
            ran.clear()
            wake.set()
        await background.stop()
        background.repeat(step, 0.0)
        await asyncio.sleep(0.01)

    asyncio.run(main())
    assert n_runs == 3
