"""Runs prompts through the model and records which experts each request used, before and after."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from assets.tiny_moe.groups import GROUPS
from assets.tiny_moe.model import TinyMoe
from assets.tiny_moe.train import SEQUENCE_TOKENS
from eldr_runtime.expert_trace import ExpertTrace, count_topk
from eldr_runtime.model_shape import ModelShape
from eldr_runtime.prompt_file import Prompt

PREFILL_TOKENS = 128
DECODE_TOKENS = 128
TEMPERATURE = 0.8
REQUESTS_PER_BATCH = 96
LOSS_WINDOWS = 64
LOSS_BATCH_WINDOWS = 8  # divides LOSS_WINDOWS: batches weigh alike


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DecodedRequests:
    """Expert use of each request, labelled by group, and the tokens it sampled.

    Attributes
    ----------
    trace
        With decode counts and labels.
    sampled
        int64 `(n_requests, n_steps)`.
    """

    trace: ExpertTrace
    sampled: NDArray[np.int64]


@torch.no_grad()
def decode(model: TinyMoe, tokenizer: Tokenizer, prompts: Sequence[Prompt], seed: int) -> DecodedRequests:
    """Prefill the first 128 tokens of each prompt, then sample 128, at temperature 0.8."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.tensor([tokenizer.encode(prompt.text).ids[:PREFILL_TOKENS] for prompt in prompts])
    parts = [_decode_batch(model, part, generator) for part in tokens.split(REQUESTS_PER_BATCH)]
    sampled, prefill_counts, decode_counts = (np.concatenate(part) for part in zip(*parts, strict=True))
    config = model.config
    trace = ExpertTrace(
        shape=ModelShape(
            model="tiny-moe", n_layers=config.n_layers, n_experts=config.n_experts, top_k=config.top_k
        ),
        prefill_counts=prefill_counts,
        prompt_tokens=np.full(len(prompts), PREFILL_TOKENS),
        covered_tokens=np.full(len(prompts), PREFILL_TOKENS),
        decode_counts=decode_counts,
        decode_steps=np.full(len(prompts), DECODE_TOKENS),
        labels=tuple(prompt.fields["group"] for prompt in prompts),
    )
    return DecodedRequests(trace=trace, sampled=sampled)


def _decode_batch(
    model: TinyMoe, tokens: Tensor, generator: torch.Generator
) -> tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.uint32]]:
    caches = model.new_caches()
    output = model(tokens, caches)
    prefill_counts = _counts(model, [output.expert_ids], len(tokens))
    sampled, ids = [], []
    for _ in range(DECODE_TOKENS):
        scores = model.logits(output.hidden[:, -1]) / TEMPERATURE
        drawn = torch.multinomial(functional.softmax(scores, dim=-1), 1, generator=generator)
        output = model(drawn, caches)
        sampled.append(drawn)
        ids.append(output.expert_ids)
    return torch.cat(sampled, dim=1).numpy(), prefill_counts, _counts(model, ids, len(tokens))


def _counts(model: TinyMoe, ids: Sequence[Tensor], n_requests: int) -> NDArray[np.uint32]:
    """Count experts by request; each of `ids` is `(n_requests * n_positions, n_layers, top_k)`."""
    by_request = torch.cat([part.unflatten(0, (n_requests, -1)) for part in ids], dim=1)
    return np.stack([count_topk(request, model.config.n_experts) for request in by_request.byte().numpy()])


@torch.no_grad()
def held_out_losses(model: TinyMoe, corpus: Path) -> dict[str, float]:
    """Mean cross-entropy a token, in nats, on held-out documents of each group."""
    losses = {}
    with np.load(corpus / "tokens.npz") as streams:
        for group in GROUPS:
            stream = torch.from_numpy(streams[f"held_out/{group.name}"].astype(np.int64))
            windows = stream[: LOSS_WINDOWS * SEQUENCE_TOKENS + 1]
            inputs, targets = (part.view(-1, SEQUENCE_TOKENS) for part in (windows[:-1], windows[1:]))
            batches = zip(inputs.split(LOSS_BATCH_WINDOWS), targets.split(LOSS_BATCH_WINDOWS), strict=True)
            losses[group.name] = float(np.mean([_loss(model, *batch) for batch in batches]))
    return losses


def _loss(model: TinyMoe, inputs: Tensor, targets: Tensor) -> float:
    logits = model.logits(model(inputs).hidden)
    return float(functional.cross_entropy(logits.flatten(0, 1), targets.flatten()))
