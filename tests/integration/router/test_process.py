"""The router as a process: the official client, sockets, and an orderly end."""

import asyncio
import os
import signal
import socket
import sys

import aiohttp
import openai
import pytest

pytestmark = pytest.mark.anyio

COMMAND = "from eldr_runtime.cli.router import router_command; router_command()"


@pytest.fixture
async def client(router):
    async with openai.AsyncOpenAI(base_url=f"{router.url}/v1", api_key="any", max_retries=0) as client:
        yield client


async def test_the_official_client_streams_completions(fleet, router, client):
    stream = await client.completions.create(model="tiny", prompt="hello", max_tokens=4, stream=True)
    text = [chunk.choices[0].text async for chunk in stream]
    assert "".join(text) == "t0 t1 t2 t3 "
    await router.ended(1)


async def test_the_official_client_streams_chats_with_usage(fleet, router, client):
    stream = await client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": "hello"}],
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"top_k": 5},
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(each.choices[0].delta.content or "" for each in chunks if each.choices) == "t0 t1 t2 t3 "
    assert chunks[-1].usage.completion_tokens == 4
    assert fleet.received("decode")[0].body["top_k"] == 5
    await router.ended(1)


async def test_the_official_client_without_streaming_and_models(router, client):
    answer = await client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "hi"}])
    assert answer.choices[0].message.content == "t0 t1 t2 t3 "
    assert [model.id async for model in client.models.list()] == ["tiny"]
    await router.ended(1)


async def test_the_official_client_raises_what_breaks_a_stream(fleet, router, client):
    for worker in fleet.decode:
        worker.fault = "cut"
        worker.fault_after = 2
    stream = await client.completions.create(model="tiny", prompt="hello", stream=True)
    with pytest.raises(openai.APIError, match="broke the connection") as broken:
        async for _ in stream:
            pass
    assert broken.value.code == "stream_broken"
    await router.ended(1)


async def test_the_official_client_raises_a_typed_error_before_it(fleet, router, client):
    for worker in fleet.decode:
        worker.status = 500
    with pytest.raises(openai.InternalServerError, match="answered with status 500"):
        await client.completions.create(model="tiny", prompt="hello", stream=True)
    await router.ended(1)


async def test_small_chunks_do_not_wait_for_acknowledgements(router):
    """Find the accepted connection among this process's sockets and look at its TCP_NODELAY."""
    _, writer = await asyncio.open_connection("127.0.0.1", router.port)
    writer.write(b"GET /livez HTTP/1.1\r\nHost: r\r\n\r\n")
    await asyncio.sleep(0.1)
    client_port = writer.get_extra_info("sockname")[1]
    assert _has_nodelay(("127.0.0.1", client_port)) is True
    writer.close()


def _has_nodelay(peer: tuple[str, int]) -> bool | None:
    for name in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(name))) as each:
                if each.family == socket.AF_INET and each.getpeername() == peer:
                    return each.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
        except OSError:
            continue
    return None


async def test_a_stop_lets_streams_end_and_takes_no_more(fleet, start_router, eventually):
    router = await start_router()
    for worker in fleet.decode:
        worker.pause_after = 2
    reader, writer = await router.open_raw()
    await reader.readuntil(b"t1 ")
    stopping = asyncio.create_task(router.stop())
    await eventually(lambda: _refuses(router.port))
    for worker in fleet.decode:
        worker.resume.set()
    rest = await reader.readuntil(b"[DONE]\n\n")
    assert b"t3 " in rest
    await stopping
    assert fleet.control_plane.events[0]["outcome"] == "completed"
    router.assert_nothing_in_flight()
    writer.close()


async def test_a_stop_does_not_wait_for_ever(fleet, start_router):
    router = await start_router()
    for worker in fleet.decode:
        worker.pause_after = 2
    reader, writer = await router.open_raw()
    await reader.readuntil(b"t1 ")
    await router.stop()
    # The stream is cut, so that nobody takes it for whole.
    assert b"[DONE]" not in await reader.read()
    router.assert_nothing_in_flight()
    assert fleet.control_plane.events[0]["outcome"] == "decode_failed"
    writer.close()


def _refuses(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


async def test_the_command_serves_and_ends_on_sigterm(fleet, free_port, tmp_path):
    command = [
        *(sys.executable, "-c", COMMAND, "--fleet", "tiny-fleet"),
        *("--control-plane", fleet.control_plane.url, "--data", str(tmp_path), "--port", str(free_port)),
    ]
    environment = {
        **os.environ,
        "ELDR_API_KEY": fleet.control_plane.api_key,
        "ELDR_ROUTER_SCRAPE_SECONDS": "1",
    }
    process = await asyncio.create_subprocess_exec(*command, env=environment, stderr=asyncio.subprocess.PIPE)
    try:
        async with aiohttp.ClientSession() as session, asyncio.timeout(20):
            while _refuses(free_port):  # noqa: ASYNC110  it is another process
                await asyncio.sleep(0.05)
            body = {"model": "tiny", "prompt": "hello"}
            url = f"http://127.0.0.1:{free_port}/v1/completions"
            async with session.post(url, json=body) as response:
                assert response.status == 200
        process.send_signal(signal.SIGTERM)
        _, errors = await asyncio.wait_for(process.communicate(), 10)
    finally:
        if process.returncode is None:
            process.kill()
    assert b"Traceback" not in errors
    assert process.returncode in (0, -signal.SIGTERM)
    assert sum(row["n_requests"] for blob in fleet.control_plane.blobs for row in blob["rows"]) == 1


async def test_a_setting_nobody_knows_is_refused(tmp_path):
    environment = {**os.environ, "ELDR_ROUTER_SCRAPE_SECOND": "1"}
    command = ["-c", COMMAND, "--fleet", "f", "--data", str(tmp_path), "--port", "0"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, env=environment, stderr=asyncio.subprocess.PIPE
    )
    _, errors = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode != 0
    assert b"ELDR_ROUTER_SCRAPE_SECOND" in errors
