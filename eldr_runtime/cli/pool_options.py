"""The options by which `eldr fleet` and `eldr load` name the same pool of request profiles."""

from pathlib import Path

import click

from eldr_runtime.cli.console import seed_option
from eldr_runtime.cli.option_group import option_group
from eldr_runtime.simulated_fleet.pool_source import PoolSource
from eldr_runtime.simulation.workload import MixName

_OPTIONS = (
    click.option(
        "--pack",
        type=click.Path(exists=True, path_type=Path),
        help="Trace pack whose requests are the profiles; it needs decode counts.",
    ),
    click.option(
        "--workload",
        type=click.Choice([mix.value for mix in MixName]),
        help="Generate the profiles instead of reading a pack; equal in every process with equal options.",
    ),
    click.option(
        "--profiles",
        "n_profiles",
        type=click.IntRange(1, 100_000),
        default=600,
        show_default=True,
        help="Profiles to generate.",
    ),
    click.option(
        "--prompt-tokens",
        type=click.IntRange(4, 30_000),
        default=150,
        show_default=True,
        help="Words a prompt; generated profiles are of this length.",
    ),
    click.option("--model", help="Name of the model, served and in counts; without it, the pack's own."),
    seed_option,
)


def _pool_source(
    pack: Path | None,
    workload: str | None,
    n_profiles: int,
    prompt_tokens: int,
    model: str | None,
    seed: int,
    prompts: Path | None = None,
) -> PoolSource:
    return PoolSource(
        pack=pack,
        workload=None if workload is None else MixName(workload),
        n_profiles=n_profiles,
        prompt_tokens=prompt_tokens,
        seed=seed,
        model=model,
        prompts=prompts,
    )


pool_options = option_group("source", _OPTIONS, _pool_source)
"""Adds the options, and gives them to the command as its argument `source`, a `PoolSource`."""
