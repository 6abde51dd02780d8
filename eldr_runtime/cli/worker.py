"""`eldr worker`: one vLLM with its KV connector and the plugin, registered with a control plane."""

import asyncio
import logging
import os
import shlex
import socket
import sys
import tempfile
from pathlib import Path

import click

from eldr_runtime.cli.console import json_option, print_json, say, write_atomically
from eldr_runtime.cli.numbers import NumberRange
from eldr_runtime.errors import UnreadableFile
from eldr_runtime.routing_config import WorkerRole
from eldr_runtime.simulated_fleet.process import stop_event
from eldr_runtime.vllm_adapter.command_line import build_command, build_environment
from eldr_runtime.vllm_adapter.launch_settings import Device, KvConnector, LaunchSettings, n_kv_ports
from eldr_runtime.vllm_adapter.worker_process import API_KEY, WorkerProcessSettings, run_worker
from eldr_runtime.worker_registration import ControlPlaneAddress

ROLES = (WorkerRole.PREFILL.value, WorkerRole.DECODE.value)


@click.command("worker")
@click.argument("role", type=click.Choice(ROLES))
@click.argument("vllm_arguments", nargs=-1)
@click.option("--model", required=True, help="Folder of a checkpoint, or its name for vLLM.")
@click.option("--served-name", help="Name of the model for clients and fleet; without it, --model.")
@click.option(
    "--device",
    type=click.Choice([each.value for each in Device]),
    default="rocm",
    show_default=True,
    help="What vLLM computes on.",
)
@click.option(
    "--connector",
    type=click.Choice([each.value for each in KvConnector]),
    default="nixl",
    show_default=True,
    help="What moves the KV: nixl, or on rocm moriio in its read mode.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address vLLM listens on.")
@click.option(
    "--port", type=click.IntRange(1, 65_535), default=8100, show_default=True, help="Port vLLM listens on."
)
@click.option(
    "--reached-at", metavar="HOST", help="Host where others reach it, and its KV; without it, --host."
)
@click.option(
    "--kv-port",
    type=click.IntRange(0, 65_534),
    default=0,
    show_default=True,
    help="Port of the KV connector (moriio: and the next one); 0 takes what is free.",
)
@click.option(
    "--capacity",
    type=click.IntRange(1, 4096),
    default=256,
    show_default=True,
    help="Requests it takes at once: vLLM's --max-num-seqs.",
)
@click.option(
    "--python",
    "python",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=Path(sys.executable),
    help="Interpreter that has vLLM and eldr; without it, this one.",
)
@click.option("--control-plane", "control_plane_url", metavar="URL", help="Where to register.")
@click.option("--fleet", default="default", show_default=True, help="Fleet to register in.")
@click.option("--worker-id", metavar="NAME", help="Name in the fleet; without it, role, host name and port.")
@click.option(
    "--api-key-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with the control plane's key, role service; without it, the variable ELDR_API_KEY.",
)
@click.option(
    "--start-seconds",
    type=NumberRange(min=0, min_open=True),
    default=1800.0,
    show_default=True,
    help="How long vLLM may take to start.",
)
@click.option(
    "--drain-seconds",
    type=NumberRange(min=0),
    default=120.0,
    show_default=True,
    help="How long requests in flight may finish at the end.",
)
@click.option("--dry-run", is_flag=True, help="Print command and environment, and start nothing.")
@json_option
def worker_command(
    role: str,
    vllm_arguments: tuple[str, ...],
    model: str,
    served_name: str | None,
    device: str,
    connector: str,
    host: str,
    port: int,
    reached_at: str | None,
    kv_port: int,
    capacity: int,
    python: Path,
    control_plane_url: str | None,
    fleet: str,
    worker_id: str | None,
    api_key_file: Path | None,
    start_seconds: float,
    drain_seconds: float,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Start vLLM as a prefill or decode worker, test that its experts are real, register it.

    Further arguments for vLLM come after `--`. On SIGTERM the worker announces that it drains, finishes its
    requests and ends; when vLLM ends by itself, so does this command, with its status.
    """
    with tempfile.TemporaryDirectory(prefix="eldr-worker-") as folder:
        launch = LaunchSettings(
            worker_id=worker_id or f"{role}-{socket.gethostname()}-{port}",
            role=WorkerRole(role),
            model=model,
            served_name=served_name or model,
            python=python,
            device=Device(device),
            connector=KvConnector(connector),
            host=host,
            port=port,
            reached_at=reached_at or host,
            kv_ports=_kv_ports(kv_port, n_kv_ports(KvConnector(connector))),
            capacity=capacity,
            profile_file=Path(folder) / "decode-profiles.json",
            extra_arguments=vllm_arguments,
        )
        if dry_run:
            _show(launch, as_json)
            return 0
        settings = WorkerProcessSettings(
            launch=launch,
            control_plane=_address(control_plane_url, fleet, api_key_file),
            start_seconds=start_seconds,
            drain_seconds=drain_seconds,
        )
        return asyncio.run(_run(settings))


async def _run(settings: WorkerProcessSettings) -> int:
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    return await run_worker(settings, stop_event(), say=say, write_file=write_atomically)


def _address(url: str | None, fleet: str, api_key_file: Path | None) -> ControlPlaneAddress | None:
    if url is None:
        return None
    return ControlPlaneAddress(url=url, fleet=fleet, api_key=_api_key(api_key_file))


def _api_key(file: Path | None) -> str | None:
    """Return the key; never an argument, which every user of the machine can read."""
    if file is None:
        return os.environ.get(API_KEY)
    key = file.read_text().strip()
    if not key:
        raise UnreadableFile(f"{file} holds no key")
    return key


def _kv_ports(first: int, n_ports: int) -> tuple[int, ...]:
    """Return ports that follow each other, or free ones, all held until the last is known."""
    if first:
        return tuple(range(first, first + n_ports))
    sockets = [socket.socket() for _ in range(n_ports)]
    try:
        for each in sockets:
            each.bind(("", 0))
        return tuple(each.getsockname()[1] for each in sockets)
    finally:
        for each in sockets:
            each.close()


def _show(launch: LaunchSettings, as_json: bool) -> None:
    command, environment = build_command(launch), build_environment(launch, os.environ)
    if as_json:
        print_json({"command": list(command), "environment": environment})
        return
    for name, value in sorted(environment.items()):
        click.echo(f"{name}={shlex.quote(value)} \\")
    click.echo(shlex.join(command))
