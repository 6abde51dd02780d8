import asyncio
import time

import aiohttp
import pytest

from eldr_runtime.vllm_adapter.wire_format import VllmEngine

ENGINE = VllmEngine()
PREFILL = ENGINE.prefill_request({"prompt": "profile 5 a b", "stream": True})


async def read_stream(running, **options) -> bytes:
    async with running.stream(**options) as response:
        return await response.read()


async def collect(running, received: list[bytes]) -> None:
    async with running.stream(tokens=40) as response:
        async for data in response.content.iter_any():
            received.append(data)


def test_slow_worker_takes_longer_and_recovers(run_fleet) -> None:
    async def scenario() -> None:
        async with run_fleet() as running:
            await running.show_fault("decode-00", kind="slow", factor=10.0)
            started = time.monotonic()
            await read_stream(running, tokens=8)
            # alone the union is top_k = 2: 2 + 0.5 * 2 + 0.25 = 3.25 ms a step
            assert time.monotonic() - started >= 8 * 0.0325
            await running.show_fault("prefill-00", kind="slow", factor=4.0)
            started = time.monotonic()
            await running.post("prefill-00", "/v1/completions", PREFILL)
            assert time.monotonic() - started >= 0.120
            await running.show_fault("decode-00", kind="none")
            await read_stream(running, tokens=8)

    asyncio.run(scenario())


def test_stopped_worker_hangs_and_goes_on_where_it_was(run_fleet) -> None:
    async def scenario() -> None:
        async with run_fleet() as running:
            stream = asyncio.create_task(read_stream(running, tokens=100))
            await asyncio.sleep(0.05)
            await running.show_fault("decode-00", kind="stop")
            steps = running.decode_worker().counters().n_steps
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await running.session.get(f"{running.url('decode-00')}/health")
            assert running.decode_worker().counters().n_steps == steps
            assert not stream.done()
            await running.show_fault("decode-00", kind="none")
            assert b"[DONE]" in await stream

    asyncio.run(scenario())


def test_5xx_answers_new_requests_but_not_health(run_fleet) -> None:
    async def scenario() -> None:
        async with run_fleet() as running:
            await running.show_fault("prefill-00", kind="http_5xx", status=503)
            status, answer = await running.post("prefill-00", "/v1/completions", PREFILL)
            assert (status, answer["error"]["type"]) == (503, "ServiceUnavailableError")
            async with running.session.get(f"{running.url('prefill-00')}/health") as response:
                assert response.status == 200

    asyncio.run(scenario())


def test_cut_stream_sends_its_chunks_and_no_more(run_fleet) -> None:
    async def scenario() -> None:
        async with run_fleet() as running:
            await running.show_fault("decode-00", kind="cut_stream", after_chunks=2)
            received: list[bytes] = []
            with pytest.raises(aiohttp.ClientError):
                await collect(running, received)
            text = b"".join(received)
            assert text.count(b'"text"') == 2
            assert b"[DONE]" not in text
            await running.wait_until_idle()

    asyncio.run(scenario())


def test_without_counts_the_hand_off_still_works(run_fleet) -> None:
    async def scenario() -> None:
        async with run_fleet() as running:
            await running.show_fault("prefill-00", kind="no_counts")
            status, answer = await running.post("prefill-00", "/v1/completions", PREFILL)
            assert status == 200
            assert "eldr" not in answer["kv_transfer_params"]
            assert ENGINE.read_hand_off(answer) is not None

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "fault", [{"kind": "explode"}, {"kind": "slow", "factor": 0.5}, {"kind": "none", "x": 1}, {}]
)
def test_unknown_faults_are_refused(run_fleet, fault: dict[str, object]) -> None:
    async def scenario() -> None:
        async with run_fleet(n_prefill=0) as running:
            status, answer = await running.post("decode-00", "/simulated/faults", fault)
            assert status == 400
            assert answer["error"]["message"]

    asyncio.run(scenario())
