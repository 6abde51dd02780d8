"""A client can leave at any moment; every count comes back, and the workers stop working for it."""

import asyncio
from dataclasses import replace

import pytest

pytestmark = pytest.mark.anyio


async def test_before_its_request_is_complete(fleet, router):
    _, writer = await asyncio.open_connection("127.0.0.1", router.port)
    writer.write(b'POST /v1/completions HTTP/1.1\r\nHost: r\r\nContent-Length: 100\r\n\r\n{"prompt"')
    await writer.drain()
    await asyncio.sleep(0.05)
    assert router.process.plane.doors.n_inside == 1
    writer.close()
    assert await router.ended(1) == {"client_gone": 1}
    assert fleet.received("prefill") == []


@pytest.mark.parametrize("is_stream", [True, False])
async def test_during_prefill_which_ends_and_whose_kv_is_released(fleet, router, eventually, is_stream):
    for worker in fleet.prefill:
        worker.hold = asyncio.Event()
    _, writer = await router.open_raw(stream=is_stream)
    await eventually(lambda: len(fleet.received("prefill")) == 1)
    writer.close()
    await asyncio.sleep(0.1)
    # It still runs: closing it could lose a finished answer and strand its KV.
    assert sum(router.process.prefill_load.by_worker().values()) == 1
    assert sum(worker.n_open for worker in fleet.prefill) == 1
    for worker in fleet.prefill:
        worker.hold.set()
    assert await router.ended(1) == {"client_gone": 1}
    (release,) = fleet.received("decode")
    assert (release.body["max_tokens"], release.body["stream"]) == (1, False)
    assert fleet.kv.held == set()


async def test_during_prefill_and_the_release_fails(fleet, router, eventually):
    for worker in fleet.prefill:
        worker.hold = asyncio.Event()
    _, writer = await router.open_raw()
    await eventually(lambda: len(fleet.received("prefill")) == 1)
    for worker in fleet.decode:
        worker.status = 500
    writer.close()
    await asyncio.sleep(0.05)
    for worker in fleet.prefill:
        worker.hold.set()
    assert await router.ended(1) == {"client_gone": 1}
    assert b'eldr_router_released_hand_offs_total{outcome="left to its lease"} 1.0' in (
        router.process.metrics.to_text()
    )


async def test_during_a_prefill_that_fails(fleet, router, eventually):
    for worker in fleet.prefill:
        worker.hold = asyncio.Event()
        worker.status = 500
    _, writer = await router.open_raw()
    await eventually(lambda: len(fleet.received("prefill")) == 1)
    writer.close()
    for worker in fleet.prefill:
        worker.hold.set()
    ended = await router.ended(1)
    assert sum(ended.values()) == 1
    assert fleet.received("decode") == []


@pytest.mark.parametrize("is_stream", [True, False])
async def test_while_it_waits_for_the_first_byte_of_decode(fleet, router, eventually, is_stream):
    for worker in fleet.decode:
        worker.hold = asyncio.Event()
    _, writer = await router.open_raw(stream=is_stream)
    await eventually(lambda: sum(worker.n_open for worker in fleet.decode) == 1)
    writer.close()
    await eventually(lambda: sum(worker.n_open for worker in fleet.decode) == 0, within_seconds=1.0)
    assert await router.ended(1) == {"client_gone": 1}


async def test_in_the_middle_of_its_stream(fleet, router, eventually):
    for worker in fleet.decode:
        worker.pause_after = 2
    reader, writer = await router.open_raw()
    await reader.readuntil(b"t1 ")
    assert sum(router.process.decode_load.by_worker().values()) == 1
    writer.close()
    await eventually(lambda: sum(worker.n_left for worker in fleet.decode) == 1, within_seconds=1.0)
    assert await router.ended(1) == {"client_gone": 1}


async def test_it_resets_instead_of_closing(fleet, router, eventually):
    for worker in fleet.decode:
        worker.pause_after = 2
    reader, writer = await router.open_raw()
    await reader.readuntil(b"t1 ")
    writer.transport.abort()
    await eventually(lambda: sum(worker.n_left for worker in fleet.decode) == 1, within_seconds=1.0)
    assert await router.ended(1) == {"client_gone": 1}


async def test_after_its_whole_answer_it_was_served(fleet, router):
    reader, writer = await router.open_raw()
    await reader.readuntil(b"[DONE]\n\n")
    writer.close()
    assert await router.ended(1) == {"completed": 1}


async def test_many_leave_at_every_moment(fleet, router, eventually):
    """Sixty clients leave after up to 30 ms, wherever their request stands then."""

    async def come_and_go(index: int) -> None:
        _, writer = await router.open_raw(prompt=f"prompt {index}", stream=index % 2 == 0, max_tokens=50)
        await asyncio.sleep(0.0005 * index)
        writer.close()

    for worker in fleet.decode:
        worker.n_tokens = 50
    await asyncio.gather(*(come_and_go(index) for index in range(60)))
    ended = await router.ended(60)
    assert sum(ended.values()) == 60
    assert set(ended) <= {"client_gone", "completed"}
    await eventually(lambda: sum(worker.n_open for worker in fleet.workers) == 0)
    assert fleet.kv.held == set()


async def test_a_client_that_does_not_read_is_let_go(fleet, start_router, settings, eventually):
    router = await start_router(timeouts=replace(settings.timeouts, between_chunks_seconds=0.3))
    for worker in fleet.decode:
        worker.n_tokens = 400
        worker.token_text = "x" * 50_000
    _, writer = await router.open_raw()
    try:
        writer.transport.pause_reading()
        assert await router.ended(1) == {"client_gone": 1}
        # Its slowness is not held against the worker.
        assert router.process.reachability.reachable(["decode-0", "decode-1"]) == ("decode-0", "decode-1")
    finally:
        writer.transport.abort()
