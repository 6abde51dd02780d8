"""`eldr alerts`: list, acknowledge, silence."""

import click

from controlplane.cli.connection import client_options, reason_option
from controlplane.client import ControlPlaneClient
from controlplane.domain.alerts import Alert, AlertState, Silence
from eldr_runtime.cli.console import json_option, print_json, print_table
from eldr_runtime.cli.numbers import NumberRange
from eldr_runtime.json_values import to_json_value


@click.group("alerts")
def alerts_group() -> None:
    """Alerts of a fleet."""


@alerts_group.command("list")
@click.option("--state", type=click.Choice([state.value for state in AlertState]), help="Only these.")
@client_options
@json_option
def list_alerts(client: ControlPlaneClient, state: str | None, as_json: bool) -> None:
    """List alerts, newest first."""
    alerts = client.alerts(state)
    if as_json:
        print_json(to_json_value(alerts))
        return
    print_table(
        "Alerts", ("alert", "state", "rule", "subject", "value", "since", "seen to by"), _rows(alerts)
    )


@alerts_group.command("acknowledge")
@click.argument("alert_id")
@reason_option
@client_options
def acknowledge_alert(client: ControlPlaneClient, alert_id: str, reason: str) -> None:
    """Say that you look after an alert."""
    alert = client.acknowledge(alert_id, reason)
    click.echo(f"{alert.rule} is acknowledged by {alert.acknowledged_by}")


@alerts_group.command("silence")
@click.argument("alert_id")
@click.option("--seconds", type=NumberRange(min=1), required=True, help="How long.")
@reason_option
@client_options
def silence_alert(client: ControlPlaneClient, alert_id: str, seconds: float, reason: str) -> None:
    """Keep an alert quiet for a time."""
    alert = client.silence(alert_id, Silence(reason=reason, seconds=seconds))
    click.echo(f"{alert.rule} is silenced until {alert.silenced_until}")


def _rows(alerts: tuple[Alert, ...]) -> list[tuple[str, ...]]:
    return [
        (
            alert.id,
            alert.state.value,
            alert.rule,
            alert.subject,
            "no data" if alert.value is None else f"{alert.value:.4g} (limit {alert.threshold})",
            f"{alert.started_at:%H:%M:%S}",
            alert.acknowledged_by or "nobody",
        )
        for alert in alerts
    ]
