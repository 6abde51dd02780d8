"""The options by which a command finds the control plane, and what it says when it is refused."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from controlplane.cli.run_folder import DEFAULT_FOLDER, RunFolder
from controlplane.client import ControlPlaneClient

R = TypeVar("R")

data_option = click.option(
    "--data",
    "data_dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_FOLDER,
    show_default=True,
    help="Data folder of the `eldr up` to speak to, unless --control-plane and --fleet are given.",
)
reason_option = click.option("--reason", required=True, help="Why; it goes into the audit log.")


def client_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add the options, and give them to the command as its argument `client`, closed at its end."""

    @data_option
    @click.option("--control-plane", "url", metavar="URL", help="Address of the control plane.")
    @click.option("--fleet", metavar="NAME", help="Name of the fleet.")
    @click.option(
        "--api-key", envvar="ELDR_API_KEY", metavar="KEY", help="Key to use; better given as ELDR_API_KEY."
    )
    @functools.wraps(command)
    def with_client(
        *, data_dir: Path, url: str | None, fleet: str | None, api_key: str | None, **rest: object
    ) -> R:
        with _connect(RunFolder(path=data_dir), url, fleet, api_key) as client:
            return command(client=client, **rest)

    return with_client


def _connect(
    folder: RunFolder, url: str | None, fleet: str | None, api_key: str | None
) -> ControlPlaneClient:
    if url is not None and fleet is not None and api_key is not None:
        return ControlPlaneClient(url, api_key, fleet)
    run, keys = folder.read_run(), folder.read_keys()
    key = api_key or (None if keys is None else keys.operator)
    if key is None:
        raise click.UsageError("no key: set ELDR_API_KEY")
    return ControlPlaneClient(url or run.control_plane_url, key, fleet or run.fleet)
