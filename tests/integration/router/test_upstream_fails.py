"""Every way a worker can fail: what the client gets, who is asked next, and that the counts come back."""

import asyncio
import json
from dataclasses import replace

import pytest

pytestmark = pytest.mark.anyio


def events(data: bytes) -> list[bytes]:
    return [each for each in data.split(b"\n\n") if each]


def error_in(data: bytes) -> dict[str, object]:
    """Return the error that ends a stream, which has no clean end."""
    assert b"[DONE]" not in data
    kind, payload = events(data)[-1].split(b"\n")
    assert kind == b"event: error"
    return json.loads(payload.removeprefix(b"data: "))["error"]


async def test_prefill_5xx_is_tried_again_on_another_worker(fleet, router):
    fleet.worker(router.home()).status = 500
    status, data = await router.stream()
    assert (status, data[-14:]) == (200, b"data: [DONE]\n\n")
    assert len(fleet.received("prefill")) == 2
    assert await router.ended(1) == {"completed": 1}


async def test_prefill_5xx_everywhere(fleet, router):
    for worker in fleet.prefill:
        worker.status = 503
    status, answer = await router.complete()
    assert status == 502
    assert answer["error"]["type"] == "upstream_error"
    assert "answered with status 503" in answer["error"]["message"]
    assert len(fleet.received("prefill")) == 2
    assert fleet.received("decode") == []
    assert await router.ended(1) == {"upstream_failed": 1}


@pytest.mark.parametrize("status", [400, 404, 422, 429])
async def test_a_4xx_of_prefill_is_the_clients_own(fleet, router, status):
    for worker in fleet.prefill:
        worker.status = status
    got, answer = await router.complete()
    assert got == status
    assert answer["error"]["message"] == f"{router.home()} says {status}"
    assert len(fleet.received("prefill")) == 1
    assert await router.ended(1) == {"refused_by_worker": 1}


async def test_prefill_that_cannot_be_reached(fleet, router):
    await fleet.worker(router.home()).stop()
    assert (await router.complete())[0] == 200
    # It rests for a moment: the next request does not even try it.
    assert (await router.complete())[0] == 200
    assert len(fleet.received("prefill")) == 2
    assert await router.ended(2) == {"completed": 2}


async def test_all_prefill_workers_gone_then_back(fleet, router, eventually):
    ports = {worker: int(worker.url.rpartition(":")[2]) for worker in fleet.prefill}
    for worker in fleet.prefill:
        await worker.stop()
    assert (await router.complete())[0] == 502
    async with router.session.post(f"{router.url}/v1/completions", json={"prompt": "hello"}) as response:
        assert response.status == 503
        assert response.headers["Retry-After"] == "1"
        error = (await response.json())["error"]
    assert error["message"] == "none of the 2 prefill workers can be reached"
    for worker, port in ports.items():
        await worker.start(port)
    await asyncio.sleep(0.35)
    assert (await router.complete())[0] == 200
    assert await router.ended(3) == {"upstream_failed": 1, "no_worker": 1, "completed": 1}


@pytest.mark.parametrize("garbage", [b"not json", b"[1, 2]"])
async def test_prefill_answers_with_garbage(fleet, router, garbage):
    for worker in fleet.prefill:
        worker.garbage = garbage
    status, answer = await router.complete()
    assert (status, answer["error"]["code"]) == (502, "upstream_failed")
    assert await router.ended(1) == {"upstream_failed": 1}


async def test_prefill_that_does_not_answer_in_time(fleet, start_router, settings):
    router = await start_router(timeouts=replace(settings.timeouts, prefill_seconds=0.2))
    for worker in fleet.prefill:
        worker.hold = asyncio.Event()
    status, answer = await router.complete()
    assert (status, answer["error"]["code"]) == (504, "upstream_timeout")
    # What took its whole time once is not tried again.
    assert len(fleet.received("prefill")) == 1
    assert await router.ended(1) == {"upstream_timeout": 1}


@pytest.mark.parametrize("is_stream", [True, False])
async def test_decode_5xx_repeats_both_legs(fleet, router, is_stream):
    fleet.worker("decode-0").status = 500
    status, _ = await (router.stream() if is_stream else router.complete())
    assert status == 200
    # The failed worker may have used up the KV, so the other one gets its own.
    assert len(fleet.received("prefill")) == 2
    (first,), (second,) = (worker.received for worker in fleet.decode)
    blocks = [each.body["kv_transfer_params"]["remote_block_ids"] for each in (first, second)]
    assert blocks[0] != blocks[1]
    assert await router.ended(1) == {"completed": 1}


async def test_decode_that_cannot_be_reached_leaves_the_kv_to_another(fleet, router):
    await fleet.worker("decode-0").stop()
    status, _ = await router.stream()
    assert status == 200
    assert len(fleet.received("prefill")) == 1
    assert await router.ended(1) == {"completed": 1}


async def test_decode_fails_everywhere(fleet, router):
    for worker in fleet.decode:
        worker.status = 500
    status, data = await router.stream()
    assert status == 502
    assert json.loads(data)["error"]["code"] == "upstream_failed"
    assert [len(worker.received) for worker in fleet.decode] == [1, 1]
    assert await router.ended(1) == {"upstream_failed": 1}


@pytest.mark.parametrize("status", [400, 429])
async def test_a_4xx_of_decode_is_passed_on(fleet, router, status):
    for worker in fleet.decode:
        worker.status = status
    got, data = await router.stream()
    assert got == status
    assert json.loads(data)["error"]["message"] == f"decode-0 says {status}"
    assert [each.body["stream"] for each in fleet.received("decode")] == [
        True,
        False,
    ]  # the other is a release
    assert await router.ended(1) == {"refused_by_worker": 1}


async def test_what_only_decode_refuses_leaves_no_kv_behind(fleet, router):
    status, answer = await router.complete(max_tokens=0)
    assert (status, answer["error"]["message"]) == (400, "max_tokens is too small")
    assert fleet.kv.held == set()
    assert fleet.received("decode")[-1].body["max_tokens"] == 1
    assert await router.ended(1) == {"refused_by_worker": 1}


@pytest.mark.parametrize("fault", ["cut", "error", "without_done"])
async def test_decode_breaks_before_its_first_byte_and_another_serves(fleet, router, fault):
    fleet.worker("decode-0").fault = fault
    status, data = await router.stream()
    assert (status, data[-14:]) == (200, b"data: [DONE]\n\n")
    assert len(fleet.received("prefill")) == 2
    assert await router.ended(1) == {"completed": 1}


@pytest.mark.parametrize("fault", ["cut", "error", "without_done"])
async def test_decode_breaks_before_its_first_byte_everywhere(fleet, router, fault):
    for worker in fleet.decode:
        worker.fault = fault
    status, data = await router.stream()
    assert status == 502
    assert json.loads(data)["error"]["type"] == "upstream_error"
    assert await router.ended(1) == {"upstream_failed": 1}


@pytest.mark.parametrize(
    ("fault", "message"),
    [("cut", "broke the connection"), ("error", "engine died"), ("without_done", "ended its stream early")],
)
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
async def test_a_stream_that_breaks_ends_with_an_error_and_never_with_done(
    fleet, router, fault, message, path
):
    for worker in fleet.decode:
        worker.fault = fault
        worker.fault_after = 2
    status, data = await router.stream(path)
    assert status == 200
    assert b"t1 " in data
    assert b"t2 " not in data
    error = error_in(data)
    assert message in error["message"]
    assert (error["type"], error["code"]) == ("upstream_error", "stream_broken")
    # Nothing is asked twice once the client has a byte.
    assert len(fleet.received("decode")) == 1
    assert await router.ended(1) == {"stream_broken": 1}


async def test_decode_cut_before_a_whole_answer(fleet, router):
    for worker in fleet.decode:
        worker.fault = "cut"
    status, answer = await router.complete()
    assert (status, answer["error"]["code"]) == (502, "upstream_failed")
    assert len(fleet.received("decode")) == 2
    assert await router.ended(1) == {"upstream_failed": 1}


async def test_decode_does_not_begin_in_time(fleet, start_router, settings, eventually):
    router = await start_router(timeouts=replace(settings.timeouts, first_byte_seconds=0.2))
    for worker in fleet.decode:
        worker.hold = asyncio.Event()
    status, data = await router.stream()
    assert status == 504
    assert (
        json.loads(data)["error"]["message"] == "decode worker decode-0 did not begin within the time limit"
    )
    await eventually(lambda: sum(worker.n_open for worker in fleet.decode) == 0)
    assert await router.ended(1) == {"upstream_timeout": 1}


async def test_a_stream_stops_between_chunks(fleet, start_router, settings):
    router = await start_router(timeouts=replace(settings.timeouts, between_chunks_seconds=0.2))
    for worker in fleet.decode:
        worker.pause_after = 2
    status, data = await router.stream()
    assert status == 200
    assert error_in(data)["message"] == "decode worker decode-0 stopped in its answer within the time limit"
    assert await router.ended(1) == {"stream_broken": 1}


async def test_a_stream_takes_longer_than_the_whole_limit(fleet, start_router, settings):
    router = await start_router(timeouts=replace(settings.timeouts, total_seconds=0.4))
    for worker in fleet.decode:
        worker.n_tokens = 100
        worker.seconds_a_token = 0.01
    status, data = await router.stream()
    assert status == 200
    assert error_in(data)["code"] == "stream_broken"
    assert await router.ended(1) == {"stream_broken": 1}


async def test_three_failures_in_a_row_and_the_worker_rests(fleet, router):
    fleet.worker("decode-0").status = 500
    for _ in range(6):
        assert (await router.complete())[0] == 200
    assert len(fleet.worker("decode-0").received) == 3


async def test_no_worker_of_a_role(fleet, router, eventually):
    fleet.publish(workers=[worker.to_json() for worker in fleet.prefill])
    await eventually(lambda: router.process.config.generation == fleet.generation)
    status, answer = await router.complete()
    assert status == 503
    assert answer["error"]["message"] == "no decode worker is ready"
    # Both legs are looked at before either is called.
    assert fleet.received("prefill") == []
    assert await router.ended(1) == {"no_worker": 1}


async def test_more_requests_than_the_router_takes(fleet, start_router, settings, eventually):
    router = await start_router(bounds=replace(settings.bounds, max_in_flight=1))
    for worker in fleet.decode:
        worker.pause_after = 1
    _, writer = await router.open_raw()
    await eventually(lambda: len(fleet.received("decode")) == 1)
    async with router.session.post(f"{router.url}/v1/completions", json={"prompt": "hello"}) as response:
        assert response.status == 429
        assert response.headers["Retry-After"] == "1"
        assert (await response.json())["error"]["type"] == "overloaded_error"
    for worker in fleet.decode:
        worker.resume.set()
    await router.ended(2)
    assert (await router.complete())[0] == 200
    writer.close()
    assert await router.ended(3) == {"overloaded": 1, "completed": 2}
