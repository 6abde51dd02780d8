"""`eldr simulate`: routing policies compared on generated traffic, before anything is deployed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from eldr_runtime.cli.console import json_option, print_json, print_table, report_option, say, seed_option
from eldr_runtime.cli.numbers import Number
from eldr_runtime.cli.report_html import write_report
from eldr_runtime.cli.simulate_report import Simulated, notes, sections, table_columns, table_rows, title
from eldr_runtime.errors import InvalidValue
from eldr_runtime.latency_model import PRESETS, LatencyPreset, find_preset
from eldr_runtime.policies.choice import PolicyName, PolicySettings
from eldr_runtime.simulation.cluster import ClusterSettings
from eldr_runtime.simulation.replay import Scenario, enough_profiles
from eldr_runtime.simulation.what_if import BASELINE, WhatIf, run_what_if
from eldr_runtime.simulation.workload import MixName, WorkloadSettings

DEFAULT_POLICIES = "eldr,eldr_capped,join_shortest_queue,round_robin"


@click.command("simulate")
@click.option(
    "--workload",
    "mix",
    type=click.Choice([mix.value for mix in MixName]),
    default=MixName.BALANCED.value,
    show_default=True,
    help="How requests spread over topics; uniform has no topics, so nothing to exploit.",
)
@click.option(
    "--preset",
    type=click.Choice(sorted(PRESETS)),
    default="qwen3-30b-a3b-mi300x",
    show_default=True,
    help="Step-time model of a model on a GPU; see `eldr latency show`.",
)
@click.option(
    "--policies",
    "policy_names",
    default=DEFAULT_POLICIES,
    show_default=True,
    help=f"Policies to compare, with commas: {', '.join(PolicyName)}. {BASELINE.value} is always compared.",
)
@click.option("--prompt-tokens", default=1000, show_default=True, help="Median length of a prompt.")
@click.option("--output-tokens", default=512, show_default=True, help="Median length of an answer.")
@click.option(
    "--length-sigma",
    default=0.0,
    show_default=True,
    help="Standard deviation of the logarithm of both lengths; 0 gives every request the median.",
)
@click.option("--topics", "n_topics", default=8, show_default=True, help="Topics of the workload.")
@click.option("--rate", default=60.0, show_default=True, help="Requests a second, Poisson arrivals.")
@click.option("--workers", "n_workers", default=16, show_default=True, help="Decode workers.")
@click.option("--prefill-workers", "n_prefill", default=8, show_default=True, help="Prefill workers.")
@click.option("--requests", "n_requests", default=4000, show_default=True, help="Requests of each run.")
@click.option(
    "--seeds", "n_seeds", default=6, show_default=True, help="Runs of each policy, on other requests each."
)
@click.option(
    "--tau", default=0.1, show_default=True, help="Width of the locality band of the eldr policies."
)
@click.option(
    "--load-cap", type=Number(), help="Factor over the mean load that eldr_capped allows; 1.25 where absent."
)
@click.option(
    "--calibration-requests",
    "n_calibration",
    default=1000,
    show_default=True,
    help="Requests the centroids are fitted on, none of which is served.",
)
@seed_option
@json_option
@report_option
def simulate_command(
    mix: str,
    preset: str,
    policy_names: str,
    prompt_tokens: int,
    output_tokens: int,
    length_sigma: float,
    n_topics: int,
    rate: float,
    n_workers: int,
    n_prefill: int,
    n_requests: int,
    n_seeds: int,
    tau: float,
    load_cap: float | None,
    n_calibration: int,
    seed: int,
    as_json: bool,
    report_path: Path | None,
) -> None:
    """Compare routing policies on generated traffic and a step-time model.

    Centroids are fitted on requests that no run serves. Every policy serves the same requests of a seed, and
    changes are paired over seeds. Expert use is generated, not recorded: the figures say what a policy does
    on such traffic, not what yours would gain; `eldr assess` says that.
    """
    found = find_preset(preset)
    workload = WorkloadSettings(
        mix=MixName(mix),
        shape=found.shape,
        n_topics=n_topics,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        length_sigma=length_sigma,
        n_profiles=max(n_topics, 1),
        seed=seed,
    )
    what_if = WhatIf(
        scenario=_scenario(found, workload, n_workers, n_prefill, n_requests, rate),
        policies=parse_policies(policy_names, tau=tau, load_cap=load_cap),
        n_calibration_requests=n_calibration,
        seed=seed,
        n_seeds=n_seeds,
    )
    with _run_progress() as on_progress:
        simulated = Simulated(preset=found, what_if=what_if, result=run_what_if(what_if, on_progress))
    _publish(simulated, as_json, report_path)


def _publish(simulated: Simulated, as_json: bool, report_path: Path | None) -> None:
    if report_path is not None:
        write_report(report_path, title(simulated), sections(simulated))
    if as_json:
        print_json(simulated.to_json())
        return
    print_table(title(simulated), table_columns(), table_rows(simulated))
    for note in notes(simulated):
        say(note)


def parse_policies(names: str, *, tau: float, load_cap: float | None) -> tuple[PolicySettings, ...]:
    """Read the policies to compare; the baseline is added at the end where it is not among them."""
    known = {name.value: name for name in PolicyName}
    policies = []
    for name in (part.strip() for part in names.split(",")):
        if name not in known:
            raise InvalidValue(field="policies", value=name, limit=f"among {', '.join(known)}")
        policies.append(known[name])
    if load_cap is not None and PolicyName.ELDR_CAPPED not in policies:
        limit = f"absent unless {PolicyName.ELDR_CAPPED.value} is compared"
        raise InvalidValue(field="load_cap", value=load_cap, limit=limit)
    if BASELINE not in policies:
        policies.append(BASELINE)
    return tuple(
        PolicySettings(policy=name, tau=tau, load_cap=load_cap if name is PolicyName.ELDR_CAPPED else None)
        for name in policies
    )


def _scenario(
    preset: LatencyPreset,
    workload: WorkloadSettings,
    n_workers: int,
    n_prefill: int,
    n_requests: int,
    rate: float,
) -> Scenario:
    cluster = ClusterSettings.of_preset(preset, n_decode_workers=n_workers, n_prefill_workers=n_prefill)
    scenario = Scenario(workload=workload, cluster=cluster, n_requests=n_requests, rate_per_second=rate)
    n_profiles = max(enough_profiles(cluster, workload, rate), workload.n_topics)
    return replace(scenario, workload=replace(workload, n_profiles=n_profiles))


@contextmanager
def _run_progress() -> Iterator[Callable[[int, int], None]]:
    """Show the runs done on stderr while the block runs; nothing where stderr is no terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("runs"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("runs", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
