"""Serves prompts with KV that comes from disk: `serve_from_disk.py CHECKPOINT FOLDER REQUESTS`.

REQUESTS is a JSON file with a list of prompts (token ids) to be completed one after the other; prints a JSON
list of `kv_transfer_params`.
"""

import json
import sys
from pathlib import Path

from vllm import LLM, SamplingParams

BLOCK_SIZE = 32


def main(checkpoint: str, folder: str, requests: str) -> None:
    llm = LLM(
        model=checkpoint, dtype="float32", enforce_eager=True, block_size=BLOCK_SIZE, max_model_len=2048,
        num_gpu_blocks_override=100, disable_hybrid_kv_cache_manager=True, enable_prefix_caching=False,
        kv_transfer_config={
            "kv_connector": "MultiConnector",
            "kv_role": "kv_both",
            "kv_connector_extra_config": {
                "connectors": [
                    {
                        "kv_connector": "ExampleConnector",
                        "kv_role": "kv_both",
                        "kv_connector_extra_config": {"shared_storage_path": folder},
                    },
                    {"kv_connector": "EldrConnector", "kv_role": "kv_both"},
                ]
            },
        },
    )  # fmt: skip
    answers = []
    for prompt in json.loads(Path(requests).read_text()):
        sampling = SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True)
        (output,) = llm.generate([{"prompt_token_ids": prompt}], sampling, use_tqdm=False)
        answers.append(output.kv_transfer_params)
    print(json.dumps(answers))


main(*sys.argv[1:])
