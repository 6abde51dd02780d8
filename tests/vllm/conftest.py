"""A tiny model of random weights, vLLM in this process, and an independent computation of the same experts.

Run in vLLM's own environment: `.ci/make-vllm-env`, then `.venv-vllm/bin/pytest tests/vllm`.
"""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from eldr_runtime.count_codec import ExpertCounts, decode_counts
from eldr_runtime.vllm_adapter.command_line import IN_PROCESS_ENVIRONMENT

HERE = Path(__file__).parent
collect_ignore = [
    "answer_alone.py",
    "make_checkpoint.py",
    "serve_from_disk.py",
]  # scripts, run in processes of their own
N_LAYERS, N_EXPERTS, TOP_K = 6, 64, 4
BLOCK_SIZE = 32
TOKENS_PER_STEP = 256  # longer prompts are computed in chunks
N_BLOCKS = 112  # 3,584 tokens: enough for a few requests, too little for 16 long ones
MAX_MODEL_TOKENS = 2048
# Two computations in 32 bits may order logits differently that are as close as this.
TIE = 2e-5


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let vLLM and torch warn of themselves."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("default"))
            if importlib.util.find_spec("vllm") is None:
                item.add_marker(pytest.mark.skip(reason="vllm is not in this environment: .ci/make-vllm-env"))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Routing:
    """Experts of a sequence's tokens, uint8 `(n_tokens, n_layers, top_k)`, and their closest call."""

    ids: NDArray[np.uint8]
    closest: float

    def counts(self, start: int, stop: int) -> NDArray[np.uint32]:
        """Count the experts of a range of tokens, uint32 `(n_layers, n_experts)`."""
        total = np.zeros((N_LAYERS, N_EXPERTS), dtype=np.uint32)
        for layer in range(N_LAYERS):
            np.add.at(total[layer], self.ids[start:stop, layer].ravel(), 1)
        return total


class Reference:
    """Hugging Face's model: the experts are the largest of the logits that its routers compute."""

    def __init__(self, checkpoint: Path) -> None:
        import torch
        from transformers import Qwen3MoeForCausalLM

        self._torch = torch
        self._model = Qwen3MoeForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
        self._logits: list[NDArray[np.float32]] = []
        for layer in self._model.model.layers:
            layer.mlp.gate.register_forward_hook(self._keep)

    def _keep(self, gate: object, arguments: object, outputs: object) -> None:
        logits = outputs[0] if isinstance(outputs, tuple) else outputs
        self._logits.append(logits.reshape(-1, N_EXPERTS).numpy())

    def routing(self, token_ids: Sequence[int]) -> Routing:
        """Return the experts of a whole sequence, computed at once and without a cache."""
        self._logits.clear()
        with self._torch.no_grad():
            self._model(self._torch.tensor([list(token_ids)]), use_cache=False)
        logits = np.stack(self._logits, axis=1)
        order = np.argsort(-logits, axis=2)
        ordered = np.take_along_axis(logits, order, axis=2)
        closest = float((ordered[:, :, TOP_K - 1] - ordered[:, :, TOP_K]).min())
        return Routing(ids=order[:, :, :TOP_K].astype(np.uint8), closest=closest)

    def greedy(self, token_ids: Sequence[int]) -> list[int]:
        """Return the likeliest next token after each prefix of a sequence."""
        self._logits.clear()
        with self._torch.no_grad():
            logits = self._model(self._torch.tensor([list(token_ids)]), use_cache=False).logits
        return logits[0].argmax(dim=1).tolist()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answer:
    """What the engine says of one prompt."""

    tokens: tuple[int, ...]
    counts: ExpertCounts
    decode_counts: ExpertCounts | None


class TinyEngine:
    """vLLM with the plugin alone, in this process."""

    def __init__(self, checkpoint: Path) -> None:
        from vllm import LLM, SamplingParams

        self._sampling = SamplingParams
        self.llm = LLM(
            model=str(checkpoint), dtype="float32", enforce_eager=True, block_size=BLOCK_SIZE,
            num_gpu_blocks_override=N_BLOCKS, max_num_batched_tokens=TOKENS_PER_STEP, max_num_seqs=16,
            max_model_len=MAX_MODEL_TOKENS, disable_log_stats=False,
            kv_transfer_config={"kv_connector": "EldrConnector", "kv_role": "kv_both"},
        )  # fmt: skip

    def run(self, prompts: Sequence[Sequence[int]], n_tokens: int = 1) -> list[Answer]:
        """Complete prompts greedily, all at once."""
        sampling = self._sampling(
            max_tokens=n_tokens, temperature=0.0, ignore_eos=True,
            extra_args={"kv_transfer_params": {"eldr_decode": True}},
        )  # fmt: skip
        outputs = self.llm.generate(
            [{"prompt_token_ids": list(prompt)} for prompt in prompts], sampling, use_tqdm=False
        )
        return [_answer(output) for output in outputs]

    def metric(self, name: str) -> float:
        """Return the value of a counter on vLLM's metrics page, summed over its labels."""
        return sum(self.by_label(name, None).values())

    def by_label(self, name: str, label: str | None) -> dict[str, float]:
        """Return the values of a counter by one of its labels."""
        from prometheus_client import REGISTRY

        return {
            "" if label is None else sample.labels[label]: sample.value
            for family in REGISTRY.collect()
            for sample in family.samples
            if sample.name == name
        }

    def forget(self) -> None:
        """Empty the prefix cache."""
        assert self.llm.reset_prefix_cache()


def _answer(output: object) -> Answer:
    parameters = output.kv_transfer_params
    decode = parameters["eldr_decode"]
    return Answer(
        tokens=tuple(output.outputs[0].token_ids),
        counts=decode_counts(parameters["eldr"]),
        decode_counts=decode_counts(decode) if decode else None,
    )


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six layers of 64 experts, top 4, random weights in 32 bits, and a tokenizer of bytes."""
    folder = tmp_path_factory.mktemp("tiny-moe")
    subprocess.run([sys.executable, HERE / "make_checkpoint.py", folder], check=True, timeout=900)
    return folder


@pytest.fixture(scope="session")
def reference(checkpoint: Path) -> Reference:
    return Reference(checkpoint)


@pytest.fixture(scope="session")
def engine_environment() -> dict[str, str]:
    return IN_PROCESS_ENVIRONMENT


@pytest.fixture(scope="session")
def engine(checkpoint: Path) -> Iterator[TinyEngine]:
    before = dict(os.environ)
    os.environ.update(IN_PROCESS_ENVIRONMENT)
    yield TinyEngine(checkpoint)
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def prompts(reference: Reference) -> "PromptSource":
    return PromptSource(reference)


class PromptSource:
    """Random prompts without a call too close for two computations to agree on."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        self.n_left_out = 0

    def draw(
        self, seed: int, lengths: Sequence[int], head: Sequence[int] = ()
    ) -> list[tuple[list[int], Routing]]:
        """Return prompts of these lengths, each behind the same head, with their experts."""
        rng = np.random.default_rng(seed)
        drawn = []
        for length in lengths:
            while True:
                prompt = [*head, *rng.integers(0, 256, length).tolist()]
                routing = self._reference.routing(prompt)
                if routing.closest > TIE:
                    break
                self.n_left_out += 1
            drawn.append((prompt, routing))
        return drawn


@pytest.fixture(scope="session")
def run_script(checkpoint: Path):
    """Run a script of this folder in a fresh process; its last line of output is JSON."""

    def run(name: str, *arguments: object) -> object:
        done = subprocess.run(
            [sys.executable, HERE / name, checkpoint, *map(str, arguments)],
            env={**os.environ, **IN_PROCESS_ENVIRONMENT}, capture_output=True, text=True, check=False,
            timeout=900,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.strip().splitlines()[-1])

    return run
