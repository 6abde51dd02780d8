"""Real vLLM on this machine's CPU, one prefill and two decode workers behind the router, KV over NIXL.

Runs where `.ci/make-vllm-env` has made its environment.
"""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import httpx
import pytest

from controlplane.cli.engines import VllmCpuEngine
from controlplane.cli.run_folder import RunFolder
from controlplane.cli.stack import Stack, StackSettings, running_stack
from controlplane.client import ControlPlaneClient
from controlplane.domain.telemetry import SampledDecision
from eldr_runtime.cli.shipped import CHECKPOINT, PROMPTS
from eldr_runtime.prompt_file import read_prompts
from eldr_runtime.vllm_adapter.command_line import IN_PROCESS_ENVIRONMENT
from eldr_runtime.vllm_adapter.metrics_text import read_engine_metrics

REPOSITORY = Path(__file__).parents[3]
PYTHON = REPOSITORY / ".venv-vllm" / "bin" / "python"
N_PROMPTS = 1320
ANSWER_SECONDS = 600
ALONE_SECONDS = 1800
KILLED_SECONDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """Prompts, and the tokens that one vLLM alone answers them with, greedily and in 32 bits."""

    prompts: tuple[str, ...]
    n_tokens: int
    answers: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RealStack:
    """A running stack of real workers, and what the tests do with it."""

    stack: Stack
    client: ControlPlaneClient

    @property
    def completions_url(self) -> str:
        return f"{self.stack.url('router')}/v1/completions"

    def ask(self, prompt: str, n_tokens: int, **sampling: float) -> tuple[int, ...]:
        """Ask one prompt, greedily unless told how, and return the token ids of its answer."""
        body = {
            "model": VllmCpuEngine.MODEL, "prompt": prompt, "max_tokens": n_tokens, "temperature": 0.0,
            "ignore_eos": True, "return_token_ids": True, **sampling,
        }  # fmt: skip
        answer = httpx.post(self.completions_url, json=body, timeout=ANSWER_SECONDS, trust_env=False)
        answer.raise_for_status()
        return tuple(answer.json()["choices"][0]["token_ids"])

    def ask_all(self, questions: Questions, concurrency: int) -> list[tuple[int, ...] | None]:
        """Ask all prompts; None where one was not answered."""

        def ask(prompt: str) -> tuple[int, ...] | None:
            try:
                return self.ask(prompt, questions.n_tokens)
            except httpx.HTTPError:
                return None

        with ThreadPoolExecutor(concurrency) as pool:
            return list(pool.map(ask, questions.prompts))

    def stream(self, prompt: str, n_tokens: int) -> None:
        """Ask for a stream sampled as a model's answers are, and read it to its end."""
        body = {
            "model": VllmCpuEngine.MODEL, "prompt": prompt, "max_tokens": n_tokens, "temperature": 0.8,
            "ignore_eos": True, "stream": True,
        }  # fmt: skip
        with httpx.stream(
            "POST", self.completions_url, json=body, timeout=ANSWER_SECONDS, trust_env=False
        ) as answer:
            answer.raise_for_status()
            answer.read()

    def leave_in_the_middle(self, prompt: str) -> None:
        """Ask for a stream and close it after its first event."""
        body = {"model": VllmCpuEngine.MODEL, "prompt": prompt, "max_tokens": 200, "stream": True}
        with httpx.stream(
            "POST", self.completions_url, json=body, timeout=ANSWER_SECONDS, trust_env=False
        ) as answer:
            next(answer.iter_lines())

    def kill(self, worker: str) -> None:
        """End a worker as the kernel would."""
        (victim,) = (child for child in self.stack.children.running if child.name == worker)
        self.stack.children.running.remove(victim)
        victim.process.send_signal(signal.SIGKILL)
        victim.process.wait(KILLED_SECONDS)

    def in_flight(self) -> dict[str, int]:
        """Return the requests in flight on each decode worker, as the router counts them."""
        answer = httpx.get(f"{self.stack.url('router')}/eldr/status", timeout=10, trust_env=False)
        counts: dict[str, int] = answer.raise_for_status().json()["in_flight"]
        return counts

    def mean_decode_batch(self, worker: str) -> float:
        """Return the requests in a decode step of this worker, over all its steps, from its metrics page."""
        page = httpx.get(f"{self.stack.url(worker)}/metrics", timeout=10, trust_env=False)
        metrics = read_engine_metrics(page.raise_for_status().text)
        assert metrics.batch_sum is not None
        assert metrics.n_steps
        return metrics.batch_sum / metrics.n_steps

    def decisions(self, since: datetime) -> list[SampledDecision]:
        """All decisions since a moment; every request is sampled."""
        return [each for each in self.client.decisions(500) if each.at >= since]

    def until(self, what: str, is_so: Callable[[], bool], timeout_seconds: float) -> None:
        self.stack.children.wait_for(what, is_so, timeout_seconds)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealStack]:
    if not PYTHON.exists() and os.environ.get("CI") == "true":
        pytest.fail("vLLM's own environment is missing, which CI must have: .ci/make-vllm-env")
    if not PYTHON.exists():
        pytest.skip("vLLM's own environment is missing: .ci/make-vllm-env")
    settings = StackSettings(
        folder=RunFolder(path=tmp_path_factory.mktemp("real") / "data"),
        engine=VllmCpuEngine(python=PYTHON, checkpoint=CHECKPOINT, prompts=PROMPTS),
        n_prefill=1,
        n_decode=2,
        has_dashboard=False,
        control_plane_port=0,
        router_port=0,
    )
    with running_stack(settings) as stack, stack.client(stack.keys.operator) as client:
        yield RealStack(stack=stack, client=client)


def ask_alone(folder: Path, n_prompts: int, n_tokens: int) -> Questions:
    """Answer every n-th prompt of the project with one vLLM that does prefill and decode."""
    every_nth = read_prompts(PROMPTS).prompts[:: N_PROMPTS // n_prompts][:n_prompts]
    prompts = tuple(prompt.text for prompt in every_nth)
    requests = folder / "requests.json"
    requests.write_text(json.dumps({"prompts": prompts, "n_tokens": n_tokens}))
    script = REPOSITORY / "tests" / "vllm" / "answer_alone.py"
    done = subprocess.run(
        [PYTHON, script, CHECKPOINT, requests],
        env={**os.environ, **IN_PROCESS_ENVIRONMENT, "VLLM_PLUGINS": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=ALONE_SECONDS,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answers = json.loads(done.stdout.strip().splitlines()[-1])
    return Questions(prompts=prompts, n_tokens=n_tokens, answers=tuple(tuple(answer) for answer in answers))


@pytest.fixture(scope="module")
def few(real: RealStack, tmp_path_factory: pytest.TempPathFactory) -> Questions:
    return ask_alone(tmp_path_factory.mktemp("few"), 8, 16)


@pytest.fixture(scope="module")
def many(real: RealStack, tmp_path_factory: pytest.TempPathFactory) -> Questions:
    return ask_alone(tmp_path_factory.mktemp("many"), 64, 64)
