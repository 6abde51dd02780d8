"""`eldr router`: the streaming proxy in front of prefill and decode workers."""

import logging
import socket
from pathlib import Path

import click

from eldr_runtime.cli.console import say
from eldr_runtime.router.application import create_router
from eldr_runtime.router.server import open_socket, run_server
from eldr_runtime.router.settings import RouterSettings


@click.command("router")
@click.option("--fleet", required=True, help="The fleet to serve.")
@click.option(
    "--control-plane", "control_plane_url", metavar="URL", help="Where the configuration comes from."
)
@click.option(
    "--data",
    "data_dir",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder that keeps the last good configuration and its artifacts; one router, one folder.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    default=8000,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0 takes one that is free.",
)
@click.option("--url", metavar="URL", help="Where workers reach this router; by default host and port.")
@click.option("--router-id", metavar="NAME", help="Name of this router; by default host name and port.")
@click.option(
    "--workers",
    "workers_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help='JSON list of {"id", "role", "url"} to serve by load alone while there is no configuration.',
)
@click.option(
    "--api-key",
    envvar="ELDR_API_KEY",
    metavar="KEY",
    help="Key of the role service for the control plane; better given as ELDR_API_KEY.",
)
def router_command(
    fleet: str,
    control_plane_url: str | None,
    data_dir: Path,
    host: str,
    port: int,
    url: str | None,
    router_id: str | None,
    workers_file: Path | None,
    api_key: str | None,
) -> None:
    """Route requests to prefill and decode workers, and stream their answers.

    Speaks OpenAI's API. Timeouts, paces and bounds are set by ELDR_ROUTER_<NAME> in the environment; a name
    that is not known is refused, with the list of those that are.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    listener = open_socket(host, port)
    with listener:
        port = listener.getsockname()[1]
        settings = RouterSettings(
            control_plane_url=control_plane_url,
            fleet=fleet,
            data_dir=data_dir,
            router_id=router_id or f"{socket.gethostname()}-{port}",
            api_key=api_key,
            workers_file=workers_file,
        ).with_environment()
        own_url = url or f"http://{f'[{host}]' if ':' in host else host}:{port}"
        say(f"router {settings.router_id} of fleet {fleet} listens on {own_url}")
        run_server(create_router(settings, own_url), listener, settings.pace.stop_seconds)
