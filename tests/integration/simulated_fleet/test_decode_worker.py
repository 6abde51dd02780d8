import asyncio
import json
import time

import numpy as np
import openai
import pytest

from eldr_runtime.expert_use import expected_union
from eldr_runtime.simulated_fleet.profile_pool import ProfilePool
from eldr_runtime.vllm_adapter.metrics_text import read_engine_metrics

HAND_OFF = {
    "do_remote_prefill": True,
    "do_remote_decode": False,
    "remote_engine_id": "elsewhere",
    "remote_block_ids": [1],
    "remote_host": "127.0.0.1",
    "remote_port": 1,
}


def step_ms(pool: ProfilePool, profiles: list[int]) -> float:
    """Step time of the toy preset, written out: 2 + 0.5 union + 0.25 batch."""
    union = expected_union(pool.decode_p[profiles].astype(np.float64))
    return 2.0 + 0.5 * union + 0.25 * len(profiles)


def client_of(url: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def test_stream_is_what_an_openai_client_reads(run_fleet) -> None:
    async def scenario() -> None:
        async with run_fleet() as running, client_of(running.url("decode-00")) as client:
            stream = await client.completions.create(
                model="toy-moe",
                prompt="profile 3",
                max_tokens=10,
                stream=True,
                stream_options={"include_usage": True},
                extra_body={"kv_transfer_params": HAND_OFF},
            )
            chunks = [chunk async for chunk in stream]
            texts = [chunk.choices[0].text for chunk in chunks if chunk.choices]
            assert [len(text.split()) for text in texts] == [1, 4, 4, 1]
            assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]] == [None, None, None, "length"]
            assert chunks[-1].usage.completion_tokens == 10
            assert chunks[-1].usage.prompt_tokens == 2

    asyncio.run(scenario())


def test_chat_is_what_an_openai_client_reads(run_fleet) -> None:
    async def scenario() -> None:
        async with run_fleet() as running, client_of(running.url("decode-00")) as client:
            messages = [{"role": "user", "content": "profile 3"}]
            extra = {"kv_transfer_params": HAND_OFF}
            stream = await client.chat.completions.create(
                model="toy-moe", messages=messages, max_tokens=6, stream=True, extra_body=extra
            )
            chunks = [chunk async for chunk in stream]
            assert chunks[0].choices[0].delta.role == "assistant"
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
            whole = await client.chat.completions.create(
                model="toy-moe", messages=messages, max_tokens=6, extra_body=extra
            )
            assert whole.choices[0].message.content == text
            assert whole.choices[0].finish_reason == "length"
            assert whole.usage.completion_tokens == 6

    asyncio.run(scenario())


def test_a_fixed_batch_runs_at_the_pace_of_the_latency_model(run_fleet, pool: ProfilePool) -> None:
    profiles, n_tokens = [1, 2, 3, 4], 120

    async def one(running, profile: int) -> None:
        async with running.stream(tokens=n_tokens, profile=profile) as response:
            await response.read()

    async def scenario() -> None:
        async with run_fleet() as running:
            started = time.monotonic()
            await asyncio.gather(*(one(running, profile) for profile in profiles))
            elapsed_ms = (time.monotonic() - started) * 1000
            counters = running.decode_worker().counters()
            # the four join within a few steps; the sums are of what the model was asked, step by step
            model_ms = (
                2.0 * counters.n_steps + 0.5 * counters.distinct_experts.mean() + 0.25 * counters.batch_sum
            )
            assert counters.n_tokens == 4 * n_tokens
            assert model_ms / counters.n_steps == pytest.approx(step_ms(pool, profiles), rel=0.1)
            assert model_ms + 6 <= elapsed_ms <= 3 * model_ms

    asyncio.run(scenario())


def test_metrics_are_what_the_batch_did(run_fleet, pool: ProfilePool) -> None:
    async def scenario() -> None:
        async with run_fleet() as running:
            async with running.stream(tokens=20) as response:
                await response.read()
            async with running.session.get(f"{running.url('decode-00')}/metrics") as response:
                metrics = read_engine_metrics(await response.text())
            assert (metrics.n_steps, metrics.batch_sum, metrics.generation_tokens) == (20, 20, 20)
            assert (metrics.n_running, metrics.n_waiting, metrics.kv_cache_usage_share) == (0, 0, 0)
            expected = 20 * (1 - np.exp(pool.log_unused(3))).sum(axis=1)
            np.testing.assert_allclose(metrics.distinct_experts_sum, expected, rtol=1e-6)

    asyncio.run(scenario())


def test_client_that_goes_frees_its_place_within_a_step(run_fleet, pool: ProfilePool) -> None:
    async def scenario() -> None:
        async with run_fleet() as running:
            worker = running.decode_worker()
            async with running.stream(tokens=5000) as response:
                await response.content.readany()
                assert worker.n_in_flight == 1
                response.close()
            left_at_step = worker.counters().n_steps
            await running.wait_until_idle()
            await asyncio.sleep(0.05)
            assert worker.counters().n_steps <= left_at_step + 3
            assert worker.counters().n_tokens < 5000

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("params", "param"),
    [
        (None, "kv_transfer_params"),
        ({"do_remote_decode": True}, "kv_transfer_params"),
        ({**HAND_OFF, "remote_block_ids": None}, "kv_transfer_params.remote_block_ids"),
    ],
)
def test_request_without_a_hand_off_is_refused(run_fleet, params: object, param: str) -> None:
    async def scenario() -> None:
        async with run_fleet() as running:
            body = {"prompt": "a", "kv_transfer_params": params}
            status, answer = await running.post("decode-00", "/v1/completions", body)
            assert (status, answer["error"]["param"]) == (400, param)
            assert answer["error"]["type"] == "BadRequestError"

    asyncio.run(scenario())


def test_health_and_models_answer(run_fleet) -> None:
    async def scenario() -> None:
        async with run_fleet() as running:
            for worker_id in ("prefill-00", "decode-00"):
                async with running.session.get(f"{running.url(worker_id)}/health") as response:
                    assert response.status == 200
                async with running.session.get(f"{running.url(worker_id)}/v1/models") as response:
                    assert json.loads(await response.text())["data"][0]["id"] == "toy-moe"

    asyncio.run(scenario())
