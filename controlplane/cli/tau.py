"""`eldr tau`: look at and set the live knobs."""

import click

from controlplane.cli.connection import client_options, reason_option
from controlplane.client import ControlPlaneClient
from controlplane.domain.versions import RoutingSettings, Tune
from eldr_runtime.cli.console import json_option, print_facts, print_json
from eldr_runtime.cli.numbers import Number
from eldr_runtime.json_values import to_json_value


@click.group("tau")
def tau_group() -> None:
    """Live routing knobs: tau, policy, load cap."""


@tau_group.command("show")
@client_options
@json_option
def show_tau(client: ControlPlaneClient, as_json: bool) -> None:
    """Show the knobs in force."""
    _show(client.settings(), as_json)


@tau_group.command("set")
@click.argument("tau", type=Number())
@reason_option
@click.option("--policy", help="Also change the policy.")
@click.option("--load-cap", type=Number(), help="Also change the load cap; 0 takes it away.")
@click.option(
    "--revert-after", "auto_revert_seconds", type=Number(), metavar="SECONDS", help="Go back by itself then."
)
@client_options
@json_option
def set_tau(
    client: ControlPlaneClient,
    tau: float,
    reason: str,
    policy: str | None,
    load_cap: float | None,
    auto_revert_seconds: float | None,
    as_json: bool,
) -> None:
    """Set TAU, from 0 (locality alone) to 2 (load alone), live on every router."""
    command = Tune(
        reason=reason, tau=tau, policy=policy, load_cap=load_cap, auto_revert_seconds=auto_revert_seconds
    )
    _show(client.tune(command, revision=client.settings().revision), as_json)


def _show(settings: RoutingSettings, as_json: bool) -> None:
    if as_json:
        print_json(to_json_value(settings))
        return
    cap = "none" if settings.load_cap is None else f"{settings.load_cap:g}"
    facts = [
        ("tau", f"{settings.tau:g}"),
        ("policy", settings.policy),
        ("load cap", cap),
        ("generation", str(settings.generation)),
        ("changed", f"{settings.changed_at:%Y-%m-%d %H:%M:%S} UTC by {settings.changed_by}"),
        ("reason", settings.reason),
    ]
    print_facts(f"Routing settings, revision {settings.revision}", facts)
