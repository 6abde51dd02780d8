"""The `eldr` command: the runtime's commands and the control plane's in one group."""

import sys

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


def main() -> None:
    """Run the command line and end the process with its status."""
    refused = (*runtime.REFUSED, ControlPlaneError, ClientError)
    sys.exit(runtime.run(group=cli, refused=refused))


if __name__ == "__main__":
    main()
