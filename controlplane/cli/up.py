"""`eldr up`: everything on one machine."""

import signal
import time
from pathlib import Path

import click

from controlplane.cli.connection import data_option
from controlplane.cli.engine_options import Serving, engine_options
from controlplane.cli.engines import SimulatedEngine
from controlplane.cli.launch import POLL_SECONDS
from controlplane.cli.run_folder import RunFolder
from controlplane.cli.stack import Stack, StackSettings, running_stack
from controlplane.cli.story import Story, StoryResult
from eldr_runtime.cli.console import json_option, print_facts, print_json, say
from eldr_runtime.cli.numbers import NumberRange
from eldr_runtime.json_values import to_json_value

PORT = click.IntRange(0, 65_535)


@click.command("up")
@data_option
@click.option("--demo", "is_demo", is_flag=True, help="Drive traffic of several topics through it.")
@click.option(
    "--auto",
    "is_auto",
    is_flag=True,
    help="Play the story by itself: calibrate, promote, experiment, drift, refit, roll back, tune.",
)
@click.option(
    "--pairs", "n_pairs", type=click.IntRange(min=1), default=8, show_default=True, help="In --auto."
)
@click.option(
    "--for",
    "duration_seconds",
    type=NumberRange(min=0, min_open=True),
    metavar="SECONDS",
    help="End by itself; without it, at Ctrl-C, or with --auto when the story is over.",
)
@engine_options
@click.option("--router-port", type=PORT, default=8780, show_default=True, help="0 takes a free one.")
@click.option("--controlplane-port", type=PORT, default=8790, show_default=True, help="0 takes a free one.")
@click.option("--dashboard-port", type=PORT, default=8501, show_default=True, help="0 takes a free one.")
@click.option("--dashboard/--no-dashboard", "has_dashboard", default=True, help="Also serve the dashboard.")
@json_option
def up_command(
    data_dir: Path,
    serving: Serving,
    is_demo: bool,
    is_auto: bool,
    n_pairs: int,
    duration_seconds: float | None,
    router_port: int,
    controlplane_port: int,
    dashboard_port: int,
    has_dashboard: bool,
    as_json: bool,
) -> None:
    """Run control plane, router, dashboard and a fleet on this machine; one Ctrl-C ends all.

    All data goes into one folder. With --demo a load generator sends traffic.
    """
    if is_auto and not is_demo:
        raise click.UsageError("--auto plays on the demo's traffic: give --demo too")
    if is_auto and not isinstance(serving.engine, SimulatedEngine):
        raise click.UsageError("--auto plays on simulated workers: leave --engine out")
    settings = StackSettings(
        folder=RunFolder(path=data_dir),
        engine=serving.engine,
        n_prefill=serving.n_prefill,
        n_decode=serving.n_decode,
        has_load=is_demo,
        rate_per_second=serving.rate_per_second,
        output_tokens=serving.output_tokens,
        has_dashboard=has_dashboard,
        control_plane_port=controlplane_port,
        router_port=router_port,
        dashboard_port=dashboard_port,
    )
    signal.signal(signal.SIGTERM, _interrupt)
    say("starting control plane, router, workers and dashboard")
    with running_stack(settings) as stack:
        begin = time.monotonic()
        _say_where(stack)
        result = _play(stack, n_pairs) if is_auto else None
        if duration_seconds is not None or not is_auto:
            _stay(stack, begin, duration_seconds)
    if result is not None:
        _show(result, as_json)


def _play(stack: Stack, n_pairs: int) -> StoryResult:
    with stack.client(stack.keys.operator) as client:
        return Story(stack, client, say).play(n_pairs)


def _say_where(stack: Stack) -> None:
    run = stack.run()
    if run.dashboard_url is not None:
        say(f"dashboard      {run.dashboard_url}")
    say(f"router         {run.router_url}/v1")
    say(f"control plane  {run.control_plane_url}")
    say(f"keys           {stack.settings.folder.path / 'keys.json'}")
    say("Ctrl-C ends everything")


def _stay(stack: Stack, begin: float, duration_seconds: float | None) -> None:
    while duration_seconds is None or time.monotonic() - begin < duration_seconds:
        stack.children.check()
        time.sleep(POLL_SECONDS)


def _interrupt(number: int, frame: object) -> None:
    """Make SIGTERM end the run as Ctrl-C does."""
    raise KeyboardInterrupt


def _show(result: StoryResult, as_json: bool) -> None:
    document = to_json_value(result)
    if as_json:
        print_json(document)
        return
    assert isinstance(document, dict)
    print_facts("The story", [(name.replace("_", " "), str(value)) for name, value in document.items()])
