"""The options of `eldr up` that say what serves, and how much of it."""

from dataclasses import dataclass
from pathlib import Path

import click

from controlplane.cli.engines import Engine, SimulatedEngine, VllmCpuEngine
from eldr_runtime.cli.console import say
from eldr_runtime.cli.numbers import NumberRange
from eldr_runtime.cli.option_group import option_group
from eldr_runtime.cli.shipped import CHECKPOINT, PROMPTS
from eldr_runtime.errors import UnreadableFile
from eldr_runtime.latency_model import find_preset
from eldr_runtime.simulated_fleet.profile_pool import pool_of_trace
from eldr_runtime.trace_files import load_trace
from eldr_runtime.vllm_adapter.cpu_environment import ensure_cpu_environment

VLLM_CPU = "vllm-cpu"
SIMULATED, REAL = SimulatedEngine.USUAL, VllmCpuEngine.USUAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """An engine, its workers, and the traffic of `--demo`."""

    engine: Engine
    n_prefill: int
    n_decode: int
    rate_per_second: float
    output_tokens: int


_OPTIONS = (
    click.option(
        "--engine",
        type=click.Choice(["simulated", VLLM_CPU]),
        default="simulated",
        show_default=True,
        help="Workers that are simulated, or vLLM on this machine's CPU with a tiny real model.",
    ),
    click.option(
        "--pack",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Trace pack whose requests the simulated workers serve, instead of generated ones.",
    ),
    click.option(
        "--engine-env",
        type=click.Path(file_okay=False, path_type=Path),
        default=Path(".venv-vllm"),
        show_default=True,
        help="Environment of vllm-cpu; made where it is missing: 3.4 GB to fetch.",
    ),
    click.option(
        "--checkpoint",
        type=click.Path(file_okay=False, path_type=Path),
        default=CHECKPOINT,
        show_default="the project's tiny MoE",
        help="Model of vllm-cpu: the folder of a Qwen3-MoE checkpoint.",
    ),
    click.option(
        "--prompts",
        type=click.Path(dir_okay=False, path_type=Path),
        default=PROMPTS,
        show_default="the project's prompts",
        help="Traffic of --demo with vllm-cpu, as `eldr load --prompts` reads it.",
    ),
    click.option(
        "--prefill",
        "n_prefill",
        type=click.IntRange(1, 64),
        help=f"Workers: {SIMULATED.n_prefill}; of vllm-cpu {REAL.n_prefill}.",
    ),
    click.option(
        "--decode",
        "n_decode",
        type=click.IntRange(1, 64),
        help=f"Workers: {SIMULATED.n_decode}; of vllm-cpu {REAL.n_decode}.",
    ),
    click.option(
        "--rate",
        "rate_per_second",
        type=NumberRange(min=0, min_open=True, max=1000),
        help=f"Requests a second of --demo: {SIMULATED.rate_per_second:g}, with vllm-cpu "
        f"{REAL.rate_per_second:g}; a machine with less than two free cores takes fewer.",
    ),
    click.option(
        "--output-tokens",
        type=click.IntRange(1, 30_000),
        help=f"Tokens to generate a request of --demo: {SIMULATED.output_tokens}, with vllm-cpu "
        f"{REAL.output_tokens}.",
    ),
)


def _serving(
    engine: str,
    pack: Path | None,
    engine_env: Path,
    checkpoint: Path,
    prompts: Path,
    n_prefill: int | None,
    n_decode: int | None,
    rate_per_second: float | None,
    output_tokens: int | None,
) -> Serving:
    if engine == VLLM_CPU and pack is not None:
        raise click.UsageError("--pack is what simulated workers serve: leave --engine out")
    chosen = _vllm_cpu(engine_env, checkpoint, prompts) if engine == VLLM_CPU else _simulated(pack)
    usual = chosen.USUAL
    return Serving(
        engine=chosen,
        n_prefill=n_prefill or usual.n_prefill,
        n_decode=n_decode or usual.n_decode,
        rate_per_second=rate_per_second or usual.rate_per_second,
        output_tokens=output_tokens or usual.output_tokens,
    )


engine_options = option_group("serving", _OPTIONS, _serving)
"""Adds the options, and gives them to the command as its argument `serving`."""


def _simulated(pack: Path | None) -> SimulatedEngine:
    if pack is None:
        return SimulatedEngine()
    shape = pool_of_trace(load_trace(pack)).shape  # the fleet would refuse it later, in a log
    if (note := find_preset(SimulatedEngine.PRESET).note_on(shape)) is not None:
        say(f"note: {note}")
    return SimulatedEngine(shape=shape, pack=pack.resolve())


def _vllm_cpu(environment: Path, checkpoint: Path, prompts: Path) -> VllmCpuEngine:
    for what in (checkpoint / "config.json", prompts):
        if not what.exists():
            raise UnreadableFile(f"{what} is not there: give --checkpoint and --prompts")
    python = ensure_cpu_environment(environment, say=say)
    return VllmCpuEngine(python=python, checkpoint=checkpoint.resolve(), prompts=prompts.resolve())
