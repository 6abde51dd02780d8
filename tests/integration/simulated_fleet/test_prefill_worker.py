import asyncio
import time

import numpy as np
import pytest

from eldr_runtime.count_codec import ExpertCounts, decode_counts
from eldr_runtime.simulated_fleet.profile_pool import ProfilePool
from eldr_runtime.vllm_adapter.wire_format import VllmEngine

FILLER = " ".join(f"word{n}" for n in range(38))
BODY = {"model": "toy-moe", "prompt": f"profile 5 {FILLER}", "max_tokens": 9, "stream": True}
ENGINE = VllmEngine()


def counts_of(answer: dict[str, object]) -> ExpertCounts:
    return decode_counts(answer["kv_transfer_params"]["eldr"])


def test_answer_has_the_hand_off_and_complete_counts_and_takes_its_time(run_fleet, pool: ProfilePool) -> None:
    async def scenario() -> None:
        async with run_fleet() as running:
            started = time.monotonic()
            status, answer = await running.post("prefill-00", "/v1/completions", ENGINE.prefill_request(BODY))
            assert time.monotonic() - started >= 0.030 + 40 * 0.00003
            assert status == 200
            assert answer["usage"] == {"prompt_tokens": 40, "completion_tokens": 1, "total_tokens": 41}
            counts = counts_of(answer)
            assert (counts.tokens, counts.covered, counts.cached) == (40, 40, 0)
            assert counts.shape == pool.shape
            np.testing.assert_array_equal(counts.counts, pool.prefill_counts[5])
            hand_off = ENGINE.read_hand_off(answer)
            assert hand_off["do_remote_prefill"] is True
            assert hand_off["do_remote_decode"] is False
            assert hand_off["remote_engine_id"] == "prefill-00"
            assert len(hand_off["remote_block_ids"]) == 3
            assert hand_off["remote_port"] == running.fleet.worker("prefill-00").server.port

    asyncio.run(scenario())


def test_the_same_prompt_again_is_cached_and_its_counts_are_still_complete(run_fleet) -> None:
    async def scenario() -> None:
        async with run_fleet() as running:
            answers = [
                (await running.post("prefill-00", "/v1/completions", ENGINE.prefill_request(BODY)))[1]
                for _ in range(2)
            ]
            first, second = (counts_of(answer) for answer in answers)
            assert (second.cached, second.covered) == (32, 40)
            np.testing.assert_array_equal(first.counts, second.counts)

    asyncio.run(scenario())


def test_prompts_are_served_one_after_the_other(run_fleet) -> None:
    async def scenario() -> None:
        async with run_fleet() as running:
            started = time.monotonic()
            bodies = [ENGINE.prefill_request({**BODY, "prompt": f"{n} profile {n}"}) for n in range(3)]
            await asyncio.gather(*(running.post("prefill-00", "/v1/completions", body) for body in bodies))
            assert time.monotonic() - started >= 3 * 0.030

    asyncio.run(scenario())


def test_kv_is_held_until_a_decode_worker_has_pulled_it(run_fleet) -> None:
    async def scenario() -> None:
        async with run_fleet() as running:
            _, answer = await running.post("prefill-00", "/v1/completions", ENGINE.prefill_request(BODY))
            leases = running.fleet.worker("prefill-00").leases
            assert leases.n_held() == 1
            release = ENGINE.release_request(BODY, ENGINE.read_hand_off(answer))
            status, answer = await running.post("decode-00", "/v1/completions", release)
            assert (status, answer["usage"]["completion_tokens"]) == (200, 1)
            assert leases.n_held() == 0

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("change", "status", "param"),
    [
        ({"kv_transfer_params": None}, 400, "kv_transfer_params"),
        ({"max_tokens": 2}, 400, "max_tokens"),
        ({"stream": True}, 400, "max_tokens"),
        ({"model": "other"}, 404, "model"),
        ({"prompt": "profile 99"}, 400, "profile"),
        ({"prompt": 7}, 400, "prompt"),
    ],
)
def test_what_it_cannot_do_is_refused_in_openai_form(run_fleet, change, status: int, param: str) -> None:
    async def scenario() -> None:
        async with run_fleet() as running:
            body = {**ENGINE.prefill_request(BODY), **change}
            got, answer = await running.post("prefill-00", "/v1/completions", body)
            assert got == status
            assert answer["error"]["param"] == param
            assert answer["error"]["code"] == status

    asyncio.run(scenario())
