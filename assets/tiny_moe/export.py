"""Exports trained weights as a checkpoint, and checks it against Hugging Face's own implementation."""

import shutil
from pathlib import Path

import click
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from assets.tiny_moe.checkpoint import load_checkpoint, load_weights, write_checkpoint
from assets.tiny_moe.model import TinyMoe
from assets.tiny_moe.prompts import PROMPT_TOKENS
from eldr_runtime.prompt_file import read_prompts

LOGIT_TOLERANCE = 1e-5
EVERY_NTH_PROMPT = 60


def check_checkpoint(trained: TinyMoe, folder: Path, prompts: Path) -> float:
    """Compare logits and top-k sets on prompts of every group, in float64.

    In float32 this model is 2e-5 from itself in float64, at logits of up to 20: another order of summation
    would look like a fault of the export.

    Returns
    -------
    Largest difference of a logit.

    Raises
    ------
    ValueError
        A logit differs by more than `LOGIT_TOLERANCE`, or a token has another set of experts.
    """
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = [prompt.text for prompt in read_prompts(prompts).prompts[::EVERY_NTH_PROMPT]]
    tokens = torch.tensor([tokenizer(text)["input_ids"][: PROMPT_TOKENS // 2] for text in texts])
    largest = 0.0
    with torch.no_grad():
        trained = trained.double()
        output = trained(tokens)
        expected, expected_ids = trained.logits(output.hidden), output.expert_ids.sort(dim=-1).values
        reloaded = load_checkpoint(folder).double()
        again = reloaded(tokens)
        found = [(reloaded.logits(again.hidden), again.expert_ids), _reference(folder, tokens)]
    for logits, ids in found:
        if not torch.equal(ids.sort(dim=-1).values, expected_ids):
            raise ValueError(f"{folder} chooses other experts than the training model")
        largest = max(largest, float((logits - expected).abs().max()))
    if largest > LOGIT_TOLERANCE:
        raise ValueError(f"logits of {folder} differ by {largest:.2e}; the limit is {LOGIT_TOLERANCE:.0e}")
    return largest


def _reference(folder: Path, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Logits, and ids `(n_tokens, n_layers, top_k)`, of Hugging Face's implementation."""
    # Its grouped matrix product has no float64; the eager one has.
    reference = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float64, experts_implementation="eager"
    ).eval()
    output = reference(tokens, output_router_logits=True)
    top_k = reference.config.num_experts_per_tok
    ids = [layer.topk(top_k, dim=-1).indices for layer in output.router_logits]
    return output.logits, torch.stack(ids, dim=1)


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.option("--corpus", type=click.Path(path_type=Path), default=Path("out/tiny_moe/corpus"))
@click.option("--prompts", type=click.Path(path_type=Path), default=Path("assets/tiny_moe/prompts.jsonl"))
def main(run: Path, checkpoint: Path, corpus: Path, prompts: Path) -> None:
    """Export the training output RUN to the folder CHECKPOINT, and check it."""
    trained = load_weights(run / "weights.safetensors")
    write_checkpoint(trained, corpus / "tokenizer.json", checkpoint)
    shutil.copyfile(run / "training.json", checkpoint / "training.json")
    largest = check_checkpoint(trained, checkpoint, prompts)
    click.echo(f"{checkpoint}: logits within {largest:.1e}, top-{trained.config.top_k} sets identical")


if __name__ == "__main__":
    main()
