"""Routed workers answer as one instance does. In short on a few prompts; whole, `make e2e-vllm`."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest

from eldr_runtime.cli.shipped import PROMPTS
from eldr_runtime.prompt_file import read_prompts

# Of 160 tokens each: more than vLLM's usual 2,048 tokens a step.
N_AT_ONCE = 16
DELIVERED_SECONDS = 60
BUSY_SECONDS = 120


@pytest.mark.parametrize("concurrency", [1, 4])
def test_few_answers_are_those_of_one_instance(real: Any, few: Any, concurrency: int) -> None:
    assert real.ask_all(few, concurrency) == list(few.answers)
    assert {worker.engine for worker in real.client.workers()} == {"vllm"}


def test_a_prefill_worker_survives_many_seeded_prompts_at_once(real: Any) -> None:
    prompts = [prompt.text for prompt in read_prompts(PROMPTS, limit=N_AT_ONCE).prompts]

    def ask(prompt: str) -> tuple[int, ...]:
        return real.ask(prompt, 2, temperature=0.8, seed=7)

    with ThreadPoolExecutor(N_AT_ONCE) as pool:
        first, again = list(pool.map(ask, prompts)), list(pool.map(ask, prompts))
    assert first == again


@pytest.mark.full_vllm
@pytest.mark.parametrize("concurrency", [1, 4, 16])
def test_many_answers_are_those_of_one_instance(real: Any, many: Any, concurrency: int) -> None:
    assert real.ask_all(many, concurrency) == list(many.answers)


@pytest.mark.full_vllm
def test_clients_that_leave_among_others_change_no_answer(real: Any, many: Any) -> None:
    leaving = threading.Thread(
        target=lambda: [real.leave_in_the_middle(prompt) for prompt in many.prompts[::4]]
    )
    leaving.start()
    answers = real.ask_all(many, 8)
    leaving.join()
    assert answers == list(many.answers)


@pytest.mark.full_vllm
def test_a_worker_killed_under_load_costs_only_its_own_requests(real: Any, many: Any) -> None:
    since = datetime.now(UTC)
    answers: list[Any] = []
    asking = threading.Thread(target=lambda: answers.extend(real.ask_all(many, 16)))
    asking.start()
    n_in_flight = 0

    def is_loaded() -> bool:
        nonlocal n_in_flight
        n_in_flight = real.in_flight().get("decode-01", 0)
        return n_in_flight >= 4

    real.until("load on decode-01", is_loaded, BUSY_SECONDS)
    real.kill("decode-01")
    asking.join()
    lost = [number for number, answer in enumerate(answers) if answer is None]
    print(f"{len(lost)} of {n_in_flight} in flight on the killed worker were lost, of {len(answers)} asked")
    assert len(lost) <= n_in_flight + 1  # one may have come between the count and the kill
    for number, answer in enumerate(answers):
        assert answer is None or answer == many.answers[number], number
    real.until("all events", lambda: len(real.decisions(since)) >= len(answers), DELIVERED_SECONDS)
    failed = [each for each in real.decisions(since) if each.outcome != "completed"]
    assert len(failed) == len(lost)
    assert {each.decode_worker for each in failed} <= {"decode-01"}


def test_clients_that_leave_and_a_killed_worker_cost_only_their_own_requests(real: Any, few: Any) -> None:
    for prompt in few.prompts[:3]:
        real.leave_in_the_middle(prompt)
    assert real.ask_all(few, 4) == list(few.answers)
    if "decode-01" in real.stack.children.pids():
        real.kill("decode-01")
    # The router tries those again elsewhere that had not begun.
    assert real.ask_all(few, 4) == list(few.answers)
