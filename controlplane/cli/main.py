"""The `eldr` command: the runtime's commands and the control plane's in one group."""

import sys
from collections.abc import Sequence

import click

from controlplane.client_transport import ClientError
from controlplane.errors import ControlPlaneError
from eldr_runtime.cli import main as runtime
from eldr_runtime.cli.lazy_group import LazyGroup

PLACES = {
    name: f"controlplane.cli.{module}"
    for name, module in {
        "alerts": "alerts:alerts_group",
        "controlplane": "serve:controlplane_command",
        "dashboard": "dashboard:dashboard_command",
        "drift": "drift:drift_group",
        "experiments": "experiments:experiments_group",
        "keys": "keys:keys_group",
        "tau": "tau:tau_group",
        "up": "up:up_command",
        "versions": "versions:versions_group",
    }.items()
}

cli = LazyGroup(places=runtime.PLACES | PLACES, help=runtime.HELP)
click.version_option(package_name="eldr")(cli)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status, as `eldr_runtime.cli.main.run` says."""
    return runtime.run(arguments, group=cli, refused=(*runtime.REFUSED, ControlPlaneError, ClientError))


def main() -> None:
    """Run the command line and end the process with its status."""
    sys.exit(run())


if __name__ == "__main__":
    main()
