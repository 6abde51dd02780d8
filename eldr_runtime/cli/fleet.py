"""`eldr fleet`: simulated prefill and decode workers that a router cannot tell from vLLM."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import click

from eldr_runtime.cli.console import json_option, print_facts, print_json, print_table, say, write_atomically
from eldr_runtime.cli.numbers import NumberRange
from eldr_runtime.cli.pool_options import pool_options
from eldr_runtime.json_values import to_json_value
from eldr_runtime.latency_model import PRESETS, find_preset
from eldr_runtime.simulated_fleet.decode_worker import DecodeSettings
from eldr_runtime.simulated_fleet.fleet import FleetSettings
from eldr_runtime.simulated_fleet.fleet_process import FleetProcessSettings, FleetStarted, run_fleet
from eldr_runtime.simulated_fleet.pool_source import PoolSource
from eldr_runtime.simulated_fleet.profile_pool import ProfilePool
from eldr_runtime.worker_registration import ControlPlaneAddress


@click.command("fleet")
@click.option(
    "--prefill",
    "n_prefill",
    type=click.IntRange(0, 256),
    default=2,
    show_default=True,
    help="Prefill workers to start with.",
)
@click.option(
    "--decode",
    "n_decode",
    type=click.IntRange(0, 256),
    default=8,
    show_default=True,
    help="Decode workers to start with.",
)
@pool_options
@click.option(
    "--preset",
    "preset_name",
    type=click.Choice(sorted(PRESETS)),
    default="qwen3-30b-a3b-mi300x",
    show_default=True,
    help="Step-time model of the decode workers.",
)
@click.option(
    "--stream-interval",
    type=click.IntRange(1, 1024),
    default=4,
    show_default=True,
    help="Tokens a streamed chunk, after the first token.",
)
@click.option(
    "--max-running",
    type=click.IntRange(1, 4096),
    default=256,
    show_default=True,
    help="Requests a decode batch holds; others wait.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address all ports listen on.")
@click.option(
    "--port-base",
    type=click.IntRange(0, 65_000),
    default=0,
    show_default=True,
    help="Worker n listens on this port plus n; 0 takes free ports.",
)
@click.option(
    "--control-port",
    type=click.IntRange(0, 65_535),
    default=0,
    show_default=True,
    help="Port for adding and killing workers; 0 takes a free one.",
)
@click.option(
    "--workers-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Keep a JSON list of the workers in this file, for a router without a control plane.",
)
@click.option(
    "--control-plane", "control_plane_url", help="Register the workers with the control plane there."
)
@click.option("--fleet", "fleet_name", default="default", show_default=True, help="Fleet to register in.")
@click.option(
    "--api-key", envvar="ELDR_API_KEY", show_envvar=True, help="Key of the control plane, role service."
)
@click.option("--id-prefix", default="", help="Put before the id of every worker.")
@click.option(
    "--decode-profile-url",
    "decode_profile_urls",
    multiple=True,
    help="Push decode profiles there if no control plane says where to; can be repeated.",
)
@click.option(
    "--decode-profile-share",
    type=NumberRange(0, 1),
    default=1.0,
    show_default=True,
    help="Share of the requests whose profiles go to --decode-profile-url.",
)
@click.option(
    "--for",
    "duration_seconds",
    type=NumberRange(min=0, min_open=True),
    help="End after so many seconds; without it, on SIGTERM or Ctrl-C.",
)
@click.option(
    "--drain-seconds",
    type=NumberRange(min=0),
    default=30.0,
    show_default=True,
    help="How long requests in flight may finish at the end.",
)
@json_option
def fleet_command(
    source: PoolSource,
    n_prefill: int,
    n_decode: int,
    preset_name: str,
    stream_interval: int,
    max_running: int,
    host: str,
    port_base: int,
    control_port: int,
    workers_file: Path | None,
    control_plane_url: str | None,
    fleet_name: str,
    api_key: str | None,
    id_prefix: str,
    decode_profile_urls: tuple[str, ...],
    decode_profile_share: float,
    duration_seconds: float | None,
    drain_seconds: float,
    as_json: bool,
) -> None:
    """Run simulated workers in one process, each on its own port, at the pace of a latency preset.

    On SIGTERM the workers announce that they drain, finish their requests and end.
    """
    pool, preset = source.open(), find_preset(preset_name)
    if (note := preset.note_on(pool.shape)) is not None:
        say(f"note: {note}")
    decode = DecodeSettings(
        model=pool.shape.model,
        preset=preset,
        stream_interval_tokens=stream_interval,
        max_running=max_running,
    )
    settings = FleetProcessSettings(
        fleet=FleetSettings(
            n_prefill=n_prefill,
            n_decode=n_decode,
            decode=decode,
            host=host,
            port_base=port_base,
            id_prefix=id_prefix,
        ),
        control_port=control_port,
        control_plane=_address(control_plane_url, fleet_name, api_key),
        decode_profile_urls=decode_profile_urls,
        decode_profile_share=decode_profile_share,
        workers_file=workers_file,
        duration_seconds=duration_seconds,
        drain_seconds=drain_seconds,
    )
    _run(settings, pool, _print_json if as_json else _print_table)


def _run(settings: FleetProcessSettings, pool: ProfilePool, show: Callable[[FleetStarted], None]) -> None:
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    if not asyncio.run(run_fleet(settings, pool, on_started=show, write_file=write_atomically)):
        say(f"requests were still in flight after {settings.drain_seconds:g} s and were cut")


def _address(url: str | None, fleet: str, api_key: str | None) -> ControlPlaneAddress | None:
    return None if url is None else ControlPlaneAddress(url=url, fleet=fleet, api_key=api_key)


def _print_json(started: FleetStarted) -> None:
    print_json(to_json_value(started))


def _print_table(started: FleetStarted) -> None:
    print_facts("Simulated fleet", [("model", started.model), ("control port", started.control_url)])
    rows = [(worker.id, worker.role.value, worker.url) for worker in started.workers]
    print_table("Workers", ("worker", "role", "address"), rows)
