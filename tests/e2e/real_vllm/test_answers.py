"""Real vLLM on this machine's CPU, one prefill and two decode workers behind the router, KV over NIXL.

Runs where `.ci/make-vllm-env` has made its environment. In short on a few prompts; whole, `make e2e-vllm`.
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from controlplane.cli.engines import VllmCpuEngine
from controlplane.cli.run_folder import RunFolder
from controlplane.cli.stack import Stack, StackSettings, running_stack
from eldr_runtime.prompt_file import read_prompts

REPOSITORY = Path(__file__).parents[2]
PYTHON = REPOSITORY / ".venv-vllm" / "bin" / "python"
TINY_MOE = REPOSITORY / "assets" / "tiny_moe"
ANSWER_SECONDS = 600
ALONE_SECONDS = 1800
IN_PROCESS = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "WARNING",
    "GLOO_SOCKET_IFNAME": "lo", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "VLLM_PLUGINS": "",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """Prompts, and the tokens that one vLLM alone answers them with, greedily and in 32 bits."""

    prompts: tuple[str, ...]
    n_tokens: int
    answers: tuple[tuple[int, ...], ...]


def ask_alone(folder: Path, n_prompts: int, n_tokens: int) -> Questions:
    every_nth = read_prompts(TINY_MOE / "prompts.jsonl").prompts[:: 1320 // n_prompts][:n_prompts]
    prompts = tuple(prompt.text for prompt in every_nth)
    requests = folder / "requests.json"
    requests.write_text(json.dumps({"prompts": prompts, "n_tokens": n_tokens}))
    script = REPOSITORY / "tests" / "vllm" / "answer_alone.py"
    done = subprocess.run(
        [PYTHON, script, TINY_MOE / "checkpoint", requests],
        env={**os.environ, **IN_PROCESS}, capture_output=True, text=True, check=False, timeout=ALONE_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    answers = json.loads(done.stdout.strip().splitlines()[-1])
    return Questions(prompts=prompts, n_tokens=n_tokens, answers=tuple(tuple(answer) for answer in answers))


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    if not PYTHON.exists():
        pytest.skip("vLLM's own environment is missing: .ci/make-vllm-env")
    if not (TINY_MOE / "checkpoint" / "model.safetensors").exists():
        pytest.skip("the tiny model is missing: make tiny-moe")
    settings = StackSettings(
        folder=RunFolder(path=tmp_path_factory.mktemp("real") / "data"),
        engine=VllmCpuEngine(
            python=PYTHON, checkpoint=TINY_MOE / "checkpoint", prompts=TINY_MOE / "prompts.jsonl"
        ),
        n_prefill=1,
        n_decode=2,
        has_dashboard=False,
        control_plane_port=0,
        router_port=0,
    )
    with running_stack(settings) as running:
        yield running


@pytest.fixture(scope="module")
def few(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Questions:
    return ask_alone(tmp_path_factory.mktemp("few"), 8, 16)


@pytest.fixture(scope="module")
def many(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Questions:
    return ask_alone(tmp_path_factory.mktemp("many"), 64, 64)


def ask(stack: Stack, prompt: str, n_tokens: int) -> tuple[int, ...]:
    body = {
        "model": VllmCpuEngine.MODEL, "prompt": prompt, "max_tokens": n_tokens, "temperature": 0.0,
        "ignore_eos": True, "return_token_ids": True,
    }  # fmt: skip
    answer = httpx.post(
        f"{stack.url('router')}/v1/completions", json=body, timeout=ANSWER_SECONDS, trust_env=False
    )
    answer.raise_for_status()
    return tuple(answer.json()["choices"][0]["token_ids"])


def ask_all(stack: Stack, questions: Questions, concurrency: int) -> list[tuple[int, ...]]:
    with ThreadPoolExecutor(concurrency) as pool:
        return list(pool.map(lambda prompt: ask(stack, prompt, questions.n_tokens), questions.prompts))


def leave_in_the_middle(stack: Stack, prompt: str) -> None:
    """Ask for a stream and close it after its first event."""
    body = {"model": VllmCpuEngine.MODEL, "prompt": prompt, "max_tokens": 200, "stream": True}
    url = f"{stack.url('router')}/v1/completions"
    with httpx.stream("POST", url, json=body, timeout=ANSWER_SECONDS, trust_env=False) as answer:
        next(answer.iter_lines())


@pytest.mark.parametrize("concurrency", [1, 4])
def test_few_answers_are_those_of_one_instance(stack: Stack, few: Questions, concurrency: int) -> None:
    assert ask_all(stack, few, concurrency) == list(few.answers)
    with stack.client(stack.keys.operator) as client:
        assert {worker.engine for worker in client.workers()} == {"vllm"}


@pytest.mark.full_vllm
@pytest.mark.parametrize("concurrency", [1, 4, 16])
def test_many_answers_are_those_of_one_instance(stack: Stack, many: Questions, concurrency: int) -> None:
    assert ask_all(stack, many, concurrency) == list(many.answers)


def test_clients_that_leave_and_a_killed_worker_cost_only_their_own_requests(
    stack: Stack, few: Questions
) -> None:
    for prompt in few.prompts[:3]:
        leave_in_the_middle(stack, prompt)
    assert ask_all(stack, few, 4) == list(few.answers)
    (victim,) = (child for child in stack.children.running if child.name == "decode-01")
    stack.children.running.remove(victim)
    victim.process.send_signal(signal.SIGKILL)
    victim.process.wait(60)
    # The router tries those again elsewhere that had not begun.
    assert ask_all(stack, few, 4) == list(few.answers)
