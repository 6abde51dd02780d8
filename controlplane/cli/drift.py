"""`eldr drift`: look at drift reports; on a simulated fleet, make drift happen."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from controlplane.cli.connection import client_options, data_option
from controlplane.cli.load_control import inject_unseen_topic
from controlplane.cli.run_folder import RunFolder
from controlplane.client import ControlPlaneClient
from controlplane.domain.telemetry import DriftCheck
from eldr_runtime.cli.console import json_option, print_json, print_table
from eldr_runtime.cli.numbers import NumberRange
from eldr_runtime.json_values import to_json_value

LONGEST_HOURS = 10 * 366 * 24  # the longest retention


@click.group("drift")
def drift_group() -> None:
    """Drift of the traffic away from the active version."""


@drift_group.command("list")
@click.option(
    "--hours",
    type=NumberRange(min=0, min_open=True, max=LONGEST_HOURS),
    default=1.0,
    show_default=True,
    help="Back.",
)
@client_options
@json_option
def list_drift(client: ControlPlaneClient, hours: float, as_json: bool) -> None:
    """List drift reports, newest first."""
    checks = client.drift_checks(datetime.now(UTC) - timedelta(hours=hours))
    if as_json:
        print_json(to_json_value(checks))
        return
    rows = [row for check in checks for row in _rows(check)]
    print_table("Drift reports", ("at", "version", "measure", "verdict", "n", "value", "threshold"), rows)


@drift_group.command("inject")
@click.option("--share", type=NumberRange(0, 1), default=0.3, show_default=True, help="Of the requests.")
@data_option
def inject_drift(share: float, data_dir: Path) -> None:
    """Let an unseen topic take a share of the demo's traffic (simulated fleets only)."""
    url = RunFolder(path=data_dir).read_run().load_control_url
    if url is None:
        raise click.UsageError("this `eldr up` drives no simulated load; drift cannot be injected")
    inject_unseen_topic(url, share)
    click.echo(f"the unseen topic now takes {share:.0%} of the requests")


def _rows(check: DriftCheck) -> list[tuple[str, ...]]:
    return [
        (
            f"{check.at:%H:%M:%S}",
            str(check.version_number),
            measure.name,
            measure.verdict,
            f"{measure.n:,}",
            _number(measure.value),
            _number(measure.threshold),
        )
        for measure in check.measures
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
