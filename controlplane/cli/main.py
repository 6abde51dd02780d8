"""The `eldr` command: the runtime's commands and the control plane's in one group."""

import sys

import click

from controlplane.cli.alerts import alerts_group
from controlplane.cli.drift import drift_group
from controlplane.cli.experiments import experiments_group
from controlplane.cli.keys import keys_group
from controlplane.cli.serve import controlplane_command, dashboard_command
from controlplane.cli.tau import tau_group
from controlplane.cli.up import up_command
from controlplane.cli.versions import versions_group
from controlplane.client_transport import ClientError
from controlplane.errors import ControlPlaneError
from eldr_runtime.cli import main as runtime

COMMANDS = (
    up_command,
    controlplane_command,
    dashboard_command,
    versions_group,
    tau_group,
    experiments_group,
    drift_group,
    alerts_group,
    keys_group,
)


def build_cli() -> click.Group:
    """Return the whole command: what the runtime has, and what needs the control plane."""
    group = click.Group(
        name="eldr",
        help=runtime.cli.help,
        context_settings=runtime.cli.context_settings,
        params=list(runtime.cli.params),
    )
    for command in (*runtime.cli.commands.values(), *COMMANDS):
        group.add_command(command)
    return group


def main() -> None:
    """Run the command line and end the process with its status."""
    sys.exit(runtime.run(group=build_cli(), refused=(*runtime.REFUSED, ControlPlaneError, ClientError)))


if __name__ == "__main__":
    main()
