"""Answers prompts with one vLLM that does prefill and decode: `answer_alone.py CHECKPOINT REQUESTS`.

REQUESTS is a JSON file with `prompts` (texts) and `n_tokens`; prints a JSON list of token ids for each.
"""

import json
import sys
from pathlib import Path

from vllm import LLM, SamplingParams


def main(checkpoint: str, requests: str) -> None:
    asked = json.loads(Path(requests).read_text())
    llm = LLM(
        model=checkpoint, dtype="float32", enforce_eager=True, max_model_len=2048, max_num_seqs=16,
        enable_prefix_caching=False,
    )  # fmt: skip
    sampling = SamplingParams(max_tokens=asked["n_tokens"], temperature=0.0, ignore_eos=True)
    outputs = llm.generate(asked["prompts"], sampling, use_tqdm=False)
    print(json.dumps([list(output.outputs[0].token_ids) for output in outputs]))


if __name__ == "__main__":
    main(*sys.argv[1:])
