"""The two commands as processes: start, work together, end on SIGTERM with every request finished."""

import asyncio
import json
import signal
import sys
from pathlib import Path

import aiohttp

COMMANDS = (
    "import sys; from eldr_runtime.cli.fleet import fleet_command;"
    "from eldr_runtime.cli.load import load_command;"
    "{'fleet': fleet_command, 'load': load_command}[sys.argv[1]].main(sys.argv[2:])"
)
POOL = ("--workload", "balanced", "--profiles", "24", "--prompt-tokens", "20", "--seed", "5")


async def start(*arguments: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    program = (sys.executable, "-W", "error", "-c", COMMANDS, *arguments)
    return await asyncio.create_subprocess_exec(*program, stdout=pipe, stderr=pipe)


async def first_document(process: asyncio.subprocess.Process) -> dict[str, object]:
    assert process.stdout is not None
    text = ""
    async with asyncio.timeout(60):
        while line := await process.stdout.readline():
            text += line.decode()
            if line.startswith(b"}"):
                return json.loads(text)
    raise AssertionError(text)


async def stream(session: aiohttp.ClientSession, workers: dict[str, str], n_tokens: int) -> bytes:
    body = {"prompt": "profile 3", "max_tokens": 1, "kv_transfer_params": {"do_remote_decode": True}}
    async with session.post(f"{workers['prefill-00']}/v1/completions", json=body) as answer:
        hand_off = (await answer.json())["kv_transfer_params"]
    body = {"prompt": "profile 3", "max_tokens": n_tokens, "stream": True, "kv_transfer_params": hand_off}
    async with session.post(f"{workers['decode-00']}/v1/completions", json=body) as answer:
        return await answer.read()


def test_fleet_finishes_its_requests_on_sigterm(tmp_path: Path) -> None:
    async def scenario() -> None:
        workers_file = tmp_path / "workers.json"
        fleet = await start(
            "fleet", *POOL, "--prefill", "1", "--decode", "1", "--workers-file", str(workers_file), "--json"
        )
        started = await first_document(fleet)
        assert json.loads(workers_file.read_text()) == started["workers"]
        workers = {worker["id"]: worker["url"] for worker in started["workers"]}
        async with aiohttp.ClientSession() as session:
            running = asyncio.create_task(stream(session, workers, 60))
            await asyncio.sleep(0.3)
            fleet.send_signal(signal.SIGTERM)
            assert b"[DONE]" in await running
        async with asyncio.timeout(30):
            _, errors = await fleet.communicate()
        assert (fleet.returncode, errors) == (0, b"")

    asyncio.run(scenario())


def test_load_says_how_its_requests_fared_when_told_to_end() -> None:
    async def scenario() -> None:
        load = await start("load", *POOL, "--router", "http://127.0.0.1:9", "--rate", "50", "--json")
        assert load.stderr is not None
        async with asyncio.timeout(60):
            control_url = (await load.stderr.readline()).decode().removeprefix("control port: ").strip()
            async with aiohttp.ClientSession() as session:
                await wait_for_sent(session, control_url, 5)
            load.send_signal(signal.SIGTERM)
            output, errors = await load.communicate()
        summary = json.loads(output)
        assert (load.returncode, errors) == (0, b"")
        assert summary["sent"] == summary["failed"] == summary["failures"]["connection"] >= 5

    asyncio.run(scenario())


async def wait_for_sent(session: aiohttp.ClientSession, control_url: str, n_sent: int) -> None:
    sent = 0
    while sent < n_sent:
        await asyncio.sleep(0.02)
        async with session.get(f"{control_url}/status") as response:
            sent = (await response.json())["sent"]
