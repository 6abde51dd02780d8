"""`eldr experiments`: does it help? Switchback experiments on live traffic."""

import click

from controlplane.cli.connection import client_options, reason_option
from controlplane.client import ControlPlaneClient
from controlplane.domain.telemetry import Effect, Experiment, StartExperiment
from eldr_runtime.cli.console import json_option, print_json, print_table
from eldr_runtime.json_values import to_json_value


@click.group("experiments")
def experiments_group() -> None:
    """Switchback experiments: the live settings against a control policy, in turns over the whole pool."""


@experiments_group.command("list")
@client_options
@json_option
def list_experiments(client: ControlPlaneClient, as_json: bool) -> None:
    """List experiments with their effects, newest first."""
    experiments = client.experiments()
    if as_json:
        print_json(to_json_value(experiments))
        return
    rows = [row for experiment in experiments for row in _rows(experiment)]
    columns = (
        "experiment",
        "started",
        "state",
        "against",
        "metric",
        "change",
        "95 % interval",
        "pairs",
        "verdict",
    )
    print_table("Experiments", columns, rows)


@experiments_group.command("start")
@reason_option
@click.option(
    "--control-policy", default="join_shortest_queue", show_default=True, help="Policy to compare with."
)
@click.option(
    "--pairs", "n_pairs", type=click.IntRange(min=1), default=8, show_default=True, help="Window pairs."
)
@click.option("--window", "window_seconds", type=int, default=60, show_default=True, help="Seconds a window.")
@click.option(
    "--washout",
    "washout_seconds",
    type=int,
    default=20,
    show_default=True,
    help="Seconds at the start of each window that do not count; at least the P99 of residence.",
)
@client_options
@json_option
def start_experiment(
    client: ControlPlaneClient,
    reason: str,
    control_policy: str,
    n_pairs: int,
    window_seconds: int,
    washout_seconds: int,
    as_json: bool,
) -> None:
    """Start a switchback of randomised pairs of windows."""
    command = StartExperiment(
        reason=reason,
        control_policy=control_policy,
        n_pairs=n_pairs,
        window_seconds=window_seconds,
        washout_seconds=washout_seconds,
    )
    experiment = client.start_experiment(command)
    if as_json:
        print_json(to_json_value(experiment))
    else:
        click.echo(f"runs from {experiment.starts_at:%H:%M:%S} to {experiment.ends_at:%H:%M:%S} UTC")


@experiments_group.command("stop")
@click.argument("experiment_id")
@reason_option
@client_options
def stop_experiment(client: ControlPlaneClient, experiment_id: str, reason: str) -> None:
    """End an experiment early; the windows it had are kept."""
    experiment = client.stop_experiment(experiment_id, reason)
    click.echo(f"stopped after {experiment.n_pairs_done} of {experiment.n_pairs} pairs")


def _rows(experiment: Experiment) -> list[tuple[str, ...]]:
    started = f"{experiment.starts_at:%Y-%m-%d %H:%M:%S}"
    head = (experiment.id, started, experiment.state.value, experiment.control_policy)
    return [(*head, *_effect(effect)) for effect in experiment.effects] or [(*head, "-", "-", "-", "0", "-")]


def _effect(effect: Effect) -> tuple[str, ...]:
    mean = "-" if effect.mean_percent is None else f"{effect.mean_percent:+z.1f} %"
    interval = "-"
    if effect.interval_percent is not None:
        low, high = effect.interval_percent
        interval = f"[{low:+z.1f}, {high:+z.1f}] %"
    return (effect.metric, mean, interval, str(effect.n_pairs), effect.verdict)
