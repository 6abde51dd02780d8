"""KV that this worker has not computed brings no experts: fewer tokens are covered, none counted wrongly."""

import json

import numpy as np

from eldr_runtime.count_codec import decode_counts

# vLLM's example connector finds nothing of a prompt that is one token longer than whole blocks.
LENGTHS = (100, 130, 300, 580, 1129)


def test_a_fresh_process_that_loads_kv_from_disk(run_script, prompts, tmp_path) -> None:
    drawn = prompts.draw(21, LENGTHS)
    # 3,200 slots, and as many tokens of other prompts first: every block has held experts of somebody else.
    others = [prompt for prompt, _ in prompts.draw(22, [1000, 1000, 1000, 400])]
    requests, others_file = tmp_path / "prompts.json", tmp_path / "others.json"
    requests.write_text(json.dumps([prompt for prompt, _ in drawn]))
    others_file.write_text(json.dumps([*others, *(prompt for prompt, _ in drawn)]))
    written = run_script("serve_from_disk.py", tmp_path / "kv", requests)
    loaded = run_script("serve_from_disk.py", tmp_path / "kv", others_file)[len(others) :]
    for (prompt, routing), one, other in zip(drawn, written, loaded, strict=True):
        n_tokens = len(prompt)
        first, second = decode_counts(one["eldr"]), decode_counts(other["eldr"])
        assert (first.tokens, first.covered) == (n_tokens, n_tokens)
        assert np.array_equal(first.counts, routing.counts(0, n_tokens))
        n_loaded = (n_tokens - 1) // 32 * 32
        assert (second.tokens, second.covered) == (n_tokens, n_tokens - n_loaded)
        assert np.array_equal(second.counts, routing.counts(n_loaded, n_tokens))
        assert second.cached == 0
