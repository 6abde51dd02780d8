"""The options by which a command finds the control plane, and what it says when it is refused."""

import functools
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import TypeVar

import click

from controlplane.cli.run_folder import DEFAULT_FOLDER, Keys, RunFolder
from controlplane.client import ControlPlaneClient

R = TypeVar("R")

data_option = click.option(
    "--data",
    "data_dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_FOLDER,
    show_default=True,
    help="Data folder of the `eldr up` to speak to, unless --control-plane is given.",
)
reason_option = click.option("--reason", required=True, help="Why; it goes into the audit log.")


class FolderKey(Enum):
    """Which key of the data folder a command takes where it is given none."""

    OPERATOR = "operator"
    ADMIN = "admin"

    def of(self, keys: Keys) -> str:
        """Return its secret."""
        return keys.admin if self is FolderKey.ADMIN else keys.operator


def client_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add the options, and give them to the command as its argument `client`, closed at its end."""
    return _client_options(command, FolderKey.OPERATOR)


def admin_client_options(command: Callable[..., R]) -> Callable[..., R]:
    """Do the same for a command that needs the role admin."""
    return _client_options(command, FolderKey.ADMIN)


def _client_options(command: Callable[..., R], folder_key: FolderKey) -> Callable[..., R]:
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
        if url is None:
            connection = _of_folder(RunFolder(path=data_dir), fleet, api_key, folder_key)
        else:
            connection = _elsewhere(url, fleet, api_key)
        with connection as client:
            return command(client=client, **rest)

    return with_client


def _of_folder(
    folder: RunFolder, fleet: str | None, api_key: str | None, folder_key: FolderKey
) -> ControlPlaneClient:
    run = folder.read_run()
    key = api_key or folder_key.of(folder.read_keys())
    return ControlPlaneClient(run.control_plane_url, key, fleet or run.fleet)


def _elsewhere(url: str, fleet: str | None, api_key: str | None) -> ControlPlaneClient:
    """Keys of a data folder are for its own control plane: none of them is sent to another address."""
    if fleet is None:
        raise click.UsageError("--control-plane needs --fleet too")
    if api_key is None:
        raise click.UsageError("no key: set ELDR_API_KEY")
    return ControlPlaneClient(url, api_key, fleet)
