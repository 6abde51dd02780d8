"""One vLLM in this process, with the plugin or without: times a round of requests for each line it reads.

Run by `eldr bench capture` in vLLM's environment: `python -m eldr_runtime.vllm_adapter.capture_probe
CHECKPOINT with|without`. Answers each line with one of JSON.
"""

import json
import resource
import sys
import time
from collections.abc import Mapping

import numpy as np
from vllm import LLM, SamplingParams

N_PROMPTS = 16
PROMPT_TOKENS = 160
DECODE_STEPS = 64
KIB = 1024
TRANSFER = {"kv_connector": "EldrConnector", "kv_role": "kv_both"}


def main(checkpoint: str, capture: str) -> None:
    """Load the model, say so, then time a round a line."""
    transfer = {"kv_transfer_config": TRANSFER} if capture == "with" else {}
    llm = LLM(
        model=checkpoint, dtype="float32", enforce_eager=True, max_model_len=2048, max_num_seqs=N_PROMPTS,
        max_num_batched_tokens=N_PROMPTS * PROMPT_TOKENS, enable_prefix_caching=False, **transfer,
    )  # fmt: skip
    rng = np.random.default_rng(1)
    _time_round(llm, rng)  # the first one compiles and allocates
    _tell({"peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / KIB})
    for _ in sys.stdin:
        _tell(_time_round(llm, rng))


def _time_round(llm: LLM, rng: np.random.Generator) -> dict[str, float]:
    """Time prompts alone, and prompts with decode steps; milliseconds of the prefill and of one step."""
    vocabulary = llm.llm_engine.model_config.get_vocab_size()
    tokens = rng.integers(1, vocabulary, (N_PROMPTS, PROMPT_TOKENS)).tolist()
    prompts = [{"prompt_token_ids": each} for each in tokens]
    prefill_ms = _time_ms(llm, prompts, 1)
    return {
        "prefill_ms": prefill_ms,
        "step_ms": (_time_ms(llm, prompts, 1 + DECODE_STEPS) - prefill_ms) / DECODE_STEPS,
    }


def _time_ms(llm: LLM, prompts: list[dict[str, list[int]]], n_tokens: int) -> float:
    sampling = SamplingParams(max_tokens=n_tokens, temperature=0.0, ignore_eos=True)
    started = time.perf_counter()
    llm.generate(prompts, sampling, use_tqdm=False)
    return 1000 * (time.perf_counter() - started)


def _tell(document: Mapping[str, float]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
