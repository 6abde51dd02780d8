"""`eldr bench`: what fitting and routing cost on this machine, beside what they should."""

import itertools
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.progress import Progress
from threadpoolctl import threadpool_info

from eldr_runtime.array_types import Floats
from eldr_runtime.cli.capture_cost import CaptureCost, measure_capture
from eldr_runtime.cli.console import json_option, print_json, print_table, say
from eldr_runtime.cli.cost_measurements import (
    ClusterSize,
    Cost,
    FitSize,
    RecordedFit,
    RouteSize,
    measure_clustering,
    measure_counting_ms,
    measure_decision_us,
    measure_fit,
    measure_recorded_fit,
    measure_wire_kib,
)
from eldr_runtime.cli.shipped import CHECKPOINT, RECORDED_TRACE
from eldr_runtime.vllm_adapter.cpu_environment import ensure_cpu_environment

FIT_TARGET_SECONDS = 2.0
CLUSTERING_TARGET_SECONDS = 60.0
CLUSTERING_TARGET_MIB = 4096.0
DECISION_TARGET_US = {16: 30.0, 256: 200.0}  # median
COUNTING_TARGET_MS = 0.5
WIRE_TARGET_KIB = 12.0


@click.group("bench")
def bench_group() -> None:
    """Measure what fitting and routing cost on this machine, beside their targets."""


@bench_group.command("fit")
@click.option(
    "--requests",
    "n_requests",
    type=click.IntRange(min=16),
    default=1000,
    show_default=True,
    help="Requests of the fitted trace.",
)
@click.option(
    "--large/--no-large",
    default=False,
    show_default=True,
    help="Also cluster 100,000 signatures: a minute or more, about 3 GB.",
)
@json_option
def fit_command(n_requests: int, large: bool, as_json: bool) -> None:
    """Fit weights, layer mask and clusters: of a trace of the tiny MoE, and of a generated 48 x 128 one."""
    clustering = ClusterSize() if large else None
    size = replace(FitSize(), n_requests=n_requests)
    costs = recorded_fit_costs(RecordedFit(pack=RECORDED_TRACE)) + fit_costs(size, clustering)
    _print_costs("Cost of a fit", costs, as_json)


@bench_group.command("route")
@click.option(
    "--decisions",
    "n_decisions",
    type=click.IntRange(min=1),
    default=5000,
    show_default=True,
    help="Routing decisions to time.",
)
@json_option
def route_command(n_decisions: int, as_json: bool) -> None:
    """Time what one request costs: the decision, the counting of its experts, its bytes on the wire."""
    _print_costs("Cost of a request", route_costs(replace(RouteSize(), n_decisions=n_decisions)), as_json)


@bench_group.command("capture")
@click.option(
    "--engine-env",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".venv-vllm"),
    show_default=True,
    help="Environment with vLLM; made where it is missing: 3.4 GB to fetch.",
)
@click.option(
    "--checkpoint",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=CHECKPOINT,
    show_default="the project's tiny MoE",
    help="Model to serve.",
)
@click.option(
    "--rounds",
    "n_rounds",
    type=click.IntRange(min=2),
    default=20,
    show_default=True,
    help="Paired rounds, with capture and without.",
)
@json_option
def capture_command(engine_env: Path, checkpoint: Path, n_rounds: int, as_json: bool) -> None:
    """Time vLLM on this machine's CPU with capture of experts and without, in paired rounds."""
    python = ensure_cpu_environment(engine_env, say=say)
    with Progress(*Progress.get_default_columns(), console=Console(stderr=True)) as progress:
        task = progress.add_task("rounds", total=n_rounds)
        cost = measure_capture(
            python, checkpoint.resolve(), n_rounds, lambda done: progress.update(task, completed=done)
        )
    _print_costs("Cost of capture", capture_costs(cost), as_json)


def capture_costs(cost: CaptureCost) -> list[Cost]:
    """Return time with capture against time without, and the memory of both."""
    costs = []
    for what, times in (("prefill of 16 prompts", cost.prefill), ("decode step", cost.decode_step)):
        named = f"{what} with capture over without, {cost.n_rounds} paired rounds"
        values = (times.quartiles[0], times.ratio, times.quartiles[1])
        for part, value in zip(("lower quartile", "median", "upper quartile"), values, strict=True):
            costs.append(Cost(what=f"{named}, {part}", unit="ratio", measured=value, target=None))
        added = f"added to a {what}, median"
        costs.append(Cost(what=added, unit="ms", measured=times.added_ms, target=None))
    for what, mib in (("with", cost.peak_mib_with), ("without", cost.peak_mib_without)):
        costs.append(Cost(what=f"peak memory {what} capture", unit="MiB", measured=mib, target=None))
    return costs


def fit_costs(size: FitSize, clustering: ClusterSize | None) -> list[Cost]:
    """Measure a fit and, where its size is given, a clustering of many signatures."""
    fit = measure_fit(size)
    what = f"fit of {size.n_requests:,} x {size.n_layers} x {size.n_experts}, {size.n_clusters} clusters"
    costs = [Cost(what=what, unit="s", measured=fit.seconds, target=FIT_TARGET_SECONDS)]
    for stage, seconds in fit.stage_seconds:
        costs.append(Cost(what=f"  of it {stage}", unit="s", measured=seconds, target=None))
    costs.append(Cost(what=f"{what}, peak memory", unit="MiB", measured=fit.peak_mib, target=None))
    return costs + clustering_costs(clustering)


def recorded_fit_costs(fit: RecordedFit) -> list[Cost]:
    """Measure a fit of a recorded trace."""
    cost = measure_recorded_fit(fit)
    what = f"fit of {fit.pack.stem}, recorded, {fit.n_clusters} clusters"
    return [
        Cost(what=what, unit="s", measured=cost.seconds, target=None),
        Cost(what=f"{what}, peak memory", unit="MiB", measured=cost.peak_mib, target=None),
    ]


def clustering_costs(size: ClusterSize | None) -> list[Cost]:
    """Measure a clustering of many signatures; without a size list it as not measured."""
    named = size or ClusterSize()
    what = f"clustering of {named.n_requests:,} x {named.n_features:,}, {named.n_clusters} clusters"
    measured = None if size is None else measure_clustering(size)
    return [
        Cost(
            what=what,
            unit="s",
            measured=None if measured is None else measured.seconds,
            target=CLUSTERING_TARGET_SECONDS,
        ),
        Cost(
            what=f"{what}, peak memory",
            unit="MiB",
            measured=None if measured is None else measured.peak_mib,
            target=CLUSTERING_TARGET_MIB,
        ),
    ]


def route_costs(size: RouteSize) -> list[Cost]:
    """Measure what each request costs."""
    costs = []
    for n_workers, policy in itertools.product(size.n_workers, size.policies):
        what = f"{policy.value} decision, {n_workers} workers x {size.n_features:,} features"
        elapsed = measure_decision_us(policy, n_workers, size)
        costs += _median_and_p99(what, "us", elapsed, DECISION_TARGET_US.get(n_workers))
    prompt = f"{size.n_tokens:,} tokens x {size.n_layers} layers"
    costs += _median_and_p99(f"counting {prompt}", "ms", measure_counting_ms(size), COUNTING_TARGET_MS)
    wire = measure_wire_kib(size)
    costs.append(Cost(what=f"counts of {prompt} as JSON", unit="KiB", measured=wire, target=WIRE_TARGET_KIB))
    return costs


def blas_threads() -> dict[str, int]:
    """Return the threads of each numeric library that is loaded."""
    return {f"{pool['internal_api']} {pool['version']}": pool["num_threads"] for pool in threadpool_info()}


def _median_and_p99(what: str, unit: str, elapsed: Floats, target: float | None) -> list[Cost]:
    median, p99 = (float(np.quantile(elapsed, share)) for share in (0.5, 0.99))
    return [
        Cost(what=f"{what}, median", unit=unit, measured=median, target=target),
        Cost(what=f"{what}, P99", unit=unit, measured=p99, target=None),
    ]


def _print_costs(title: str, costs: Sequence[Cost], as_json: bool) -> None:
    threads = blas_threads()
    if as_json:
        machine = {
            "processors": os.cpu_count(),
            "architecture": platform.machine(),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "threads": threads,
        }
        print_json({"machine": machine, "costs": [asdict(cost) for cost in costs]})
        return
    rows = [
        (
            cost.what,
            "not measured" if cost.measured is None else f"{cost.measured:,.3g} {cost.unit}",
            "" if cost.target is None else f"at most {cost.target:,.4g} {cost.unit}",
        )
        for cost in costs
    ]
    print_table(title, ("what", "measured", "target"), rows)
    say(f"{os.cpu_count()} processors; threads: {threads}")
