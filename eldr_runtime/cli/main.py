"""The `eldr` command: one group of commands, one way to fail."""

import sys
from collections.abc import Sequence

import click

from eldr_runtime.cli.assess import assess_command
from eldr_runtime.cli.bench import bench_group
from eldr_runtime.cli.calibrate import calibrate_command
from eldr_runtime.cli.fleet import fleet_command
from eldr_runtime.cli.latency import latency_group
from eldr_runtime.cli.load import load_command
from eldr_runtime.cli.router import router_command
from eldr_runtime.cli.simulate import simulate_command
from eldr_runtime.cli.traces import traces_group
from eldr_runtime.errors import EldrError

EXIT_REFUSED = 2
EXIT_INTERRUPTED = 130
REFUSED: tuple[type[Exception], ...] = (EldrError, OSError)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="eldr")
def cli() -> None:
    """Route mixture-of-experts decodes to the workers whose requests use the same experts."""


for command in (
    traces_group,
    assess_command,
    calibrate_command,
    simulate_command,
    latency_group,
    bench_group,
    fleet_command,
    load_command,
    router_command,
):
    cli.add_command(command)


def run(
    arguments: Sequence[str] | None = None,
    *,
    group: click.Group = cli,
    refused: tuple[type[Exception], ...] = REFUSED,
) -> int:
    """Run one command and return its exit status: 0, 2 for what is refused, 130 for an interrupt.

    `refused` are the errors that are somebody's input and not this program's fault.
    """
    try:
        status = group.main(args=arguments, prog_name="eldr", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return EXIT_INTERRUPTED
    except refused as error:
        click.echo(f"eldr: {' '.join(str(error).split())}", err=True)
        return EXIT_REFUSED
    return status if isinstance(status, int) else 0


def main() -> None:
    """Run the command line and end the process with its status."""
    sys.exit(run())
