"""The options by which `eldr fleet` and `eldr load` name the same pool of request profiles."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from eldr_runtime.cli.console import seed_option
from eldr_runtime.simulated_fleet.pool_source import PoolSource
from eldr_runtime.simulation.workload import MixName

R = TypeVar("R")

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


def pool_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add the options, and give them to the command as its argument `source`, a `PoolSource`."""

    @functools.wraps(command)
    def with_source(
        *,
        pack: Path | None,
        workload: str | None,
        n_profiles: int,
        prompt_tokens: int,
        model: str | None,
        seed: int,
        prompts: Path | None = None,
        **rest: object,
    ) -> R:
        source = PoolSource(
            pack=pack,
            workload=None if workload is None else MixName(workload),
            n_profiles=n_profiles,
            prompt_tokens=prompt_tokens,
            seed=seed,
            model=model,
            prompts=prompts,
        )
        return command(source=source, **rest)

    for option in reversed(_OPTIONS):
        with_source = option(with_source)
    return with_source
