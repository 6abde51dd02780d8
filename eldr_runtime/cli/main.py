"""The `eldr` command: one group of commands, one way to fail."""

import sys
from collections.abc import Sequence

import click

from eldr_runtime.cli.lazy_group import LazyGroup
from eldr_runtime.errors import EldrError

EXIT_REFUSED = 2
EXIT_INTERRUPTED = 130
HELP = "Route mixture-of-experts decodes to the workers whose requests use the same experts."
PLACES = {
    name: f"eldr_runtime.cli.{module}"
    for name, module in {
        "assess": "assess:assess_command",
        "bench": "bench:bench_group",
        "calibrate": "calibrate:calibrate_command",
        "demo": "demo:demo_command",
        "fleet": "fleet:fleet_command",
        "latency": "latency:latency_group",
        "load": "load:load_command",
        "router": "router:router_command",
        "simulate": "simulate:simulate_command",
        "traces": "traces:traces_group",
        "worker": "worker:worker_command",
    }.items()
}
REFUSED: tuple[type[Exception], ...] = (EldrError, OSError)

cli = LazyGroup(places=PLACES, help=HELP)
click.version_option(package_name="eldr")(cli)


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
