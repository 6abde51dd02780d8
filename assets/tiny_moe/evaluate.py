"""Evaluates checkpoints, compares their seeds, and holds them to the bars."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
import numpy as np
import torch
from tokenizers import Tokenizer

from assets.tiny_moe.checkpoint import load_checkpoint
from assets.tiny_moe.decoding import DECODE_TOKENS, PREFILL_TOKENS, TEMPERATURE, decode, held_out_losses
from assets.tiny_moe.figures import (
    SCOPES,
    Bar,
    CheckpointFigures,
    bars,
    distinct_share,
    scope_figures,
    seed_spreads,
)
from assets.tiny_moe.groups import GROUPS
from eldr_runtime.prompt_file import Prompt, read_prompts

PROMPTS_PER_GROUP = 96
SAMPLING_SEED = 0


def evaluate(folder: Path, prompts: Sequence[Prompt], corpus: Path) -> CheckpointFigures:
    """Decode the prompts with one checkpoint and compute its figures."""
    model = load_checkpoint(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    requests = decode(model, tokenizer, prompts, SAMPLING_SEED)
    labels = np.array(requests.trace.labels)
    return CheckpointFigures(
        seed=json.loads((folder / "training.json").read_text())["seed"],
        held_out_loss=held_out_losses(model, corpus),
        distinct_share={
            group.name: distinct_share(requests.sampled[labels == group.name]) for group in GROUPS
        },
        scopes={scope: scope_figures(requests.trace, groups) for scope, groups in SCOPES.items()},
    )


def tell(figures: CheckpointFigures) -> None:
    """Print the figures of one checkpoint."""
    click.echo(f"seed {figures.seed}")
    for name, loss in figures.held_out_loss.items():
        click.echo(
            f"  {name:8} held-out loss {loss:.3f}  distinct 4-grams {figures.distinct_share[name]:.3f}"
        )
    for scope, part in figures.scopes.items():
        unions = " / ".join(f"{percent:.1f}" for percent in part.union_percent.values())
        click.echo(
            f"  {scope:8} union at {' / '.join(map(str, part.union_percent))}: {unions} %  "
            f"correlation {part.prefill_decode_correlation:.3f}  "
            f"rho count {part.rho_count:.3f}, count_idf {part.rho_count_idf:.3f}"
        )


def tell_bars(judged: Sequence[Bar]) -> None:
    """Print each bar and whether it is passed."""
    for bar in judged:
        click.echo(
            f"{'pass' if bar.is_passed else 'FAIL'}  {bar.name}: {bar.value:.3f} (limit {bar.limit:g})"
        )


@click.command()
@click.argument("checkpoints", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--corpus", type=click.Path(path_type=Path), default=Path("out/tiny_moe/corpus"))
@click.option("--prompts", type=click.Path(path_type=Path), default=Path("assets/tiny_moe/prompts.jsonl"))
@click.option("--output", type=click.Path(path_type=Path), required=True, help="The JSON to write.")
def main(checkpoints: tuple[Path, ...], corpus: Path, prompts: Path, output: Path) -> None:
    """Evaluate CHECKPOINTS of different seeds; exit with 1 where a bar is not passed."""
    torch.set_num_threads(1)
    in_file = read_prompts(prompts, required=("group",)).prompts
    of_group = {
        group.name: [each for each in in_file if each.fields["group"] == group.name] for group in GROUPS
    }
    chosen = [prompt for few in of_group.values() for prompt in few[:PROMPTS_PER_GROUP]]
    found = [evaluate(folder, chosen, corpus) for folder in checkpoints]
    judged = bars(found)
    result = {
        "prompts_per_group": PROMPTS_PER_GROUP,
        "prefill_tokens": PREFILL_TOKENS,
        "decode_tokens": DECODE_TOKENS,
        "temperature": TEMPERATURE,
        "checkpoints": [asdict(figures) for figures in found],
        "spread_over_seeds": seed_spreads(found),
        "bars": [asdict(bar) for bar in judged],
    }
    output.write_text(json.dumps(result, indent=2) + "\n")
    for figures in found:
        tell(figures)
    tell_bars(judged)
    sys.exit(0 if all(bar.is_passed for bar in judged) else 1)


if __name__ == "__main__":
    main()
