"""`eldr versions`: list, promote, reject, roll back."""

from datetime import UTC, datetime

import click

from controlplane.cli.connection import client_options, reason_option
from controlplane.client import ControlPlaneClient
from controlplane.domain.versions import Promote, RollBack, Version
from eldr_runtime.cli.console import json_option, print_facts, print_json, print_table
from eldr_runtime.json_values import to_json_value

override_option = click.option(
    "--override", "is_override", is_flag=True, help="Promote although a check of the gate fails."
)


@click.group("versions")
def versions_group() -> None:
    """Centroid versions: what is live, what could be."""


@versions_group.command("list")
@client_options
@json_option
def list_versions(client: ControlPlaneClient, as_json: bool) -> None:
    """List the fleet's versions, newest first."""
    versions = client.versions()
    if as_json:
        print_json(to_json_value(versions))
        return
    rows = [_row(version) for version in versions]
    print_table("Versions", ("number", "state", "origin", "clusters", "held-out union", "made"), rows)


@versions_group.command("live")
@click.option("--at", metavar="TIME", help="Moment in RFC 3339; without it, now.")
@client_options
@json_option
def show_live(client: ControlPlaneClient, at: str | None, as_json: bool) -> None:
    """Show what was live at a moment."""
    live = client.live_at(datetime.now(UTC) if at is None else _moment(at))
    if as_json:
        print_json(to_json_value(live))
        return
    settings, activation = live.settings, live.activation
    version = "none" if activation is None else f"{activation.version_number}, by {activation.actor}"
    facts = [("generation", str(live.generation)), ("version", version)]
    print_facts("Live", [*facts, ("policy", settings.policy), ("tau", f"{settings.tau:g}")])


@versions_group.command("promote")
@click.argument("number", type=click.IntRange(min=1))
@reason_option
@override_option
@client_options
@json_option
def promote_version(
    client: ControlPlaneClient, number: int, reason: str, is_override: bool, as_json: bool
) -> None:
    """Make version NUMBER the active one, if it passes the gate."""
    version = _find(client, number)
    activation = client.promote(version.id, Promote(reason=reason, is_override=is_override))
    _say_activated(activation.version_number, activation.generation, to_json_value(activation), as_json)


@versions_group.command("reject")
@click.argument("number", type=click.IntRange(min=1))
@reason_option
@client_options
def reject_version(client: ControlPlaneClient, number: int, reason: str) -> None:
    """Mark candidate NUMBER as not to be promoted."""
    version = client.reject(_find(client, number).id, reason)
    click.echo(f"version {version.number} is {version.state}")


@versions_group.command("rollback")
@click.option("--to", "number", type=click.IntRange(min=1), help="Version to go back to, not the last one.")
@reason_option
@client_options
@json_option
def roll_back(client: ControlPlaneClient, number: int | None, reason: str, as_json: bool) -> None:
    """Go back to the version that was active before this one."""
    version_id = None if number is None else _find(client, number, "--to").id
    activation = client.roll_back(RollBack(reason=reason, version_id=version_id))
    _say_activated(activation.version_number, activation.generation, to_json_value(activation), as_json)


def _say_activated(number: int, generation: int, document: object, as_json: bool) -> None:
    if as_json:
        print_json(document)
    else:
        click.echo(f"version {number} is active as generation {generation}")


def _find(client: ControlPlaneClient, number: int, given_as: str = "NUMBER") -> Version:
    versions = client.versions()
    for version in versions:
        if version.number == number:
            return version
    known = ", ".join(str(version.number) for version in versions) or "none"
    raise click.BadParameter(f"there is no version {number}; there are: {known}", param_hint=given_as)


def _row(version: Version) -> tuple[str, ...]:
    union = "not judged" if version.held_out_percent is None else f"{version.held_out_percent:+z.1f} %"
    made = version.created_at.strftime("%Y-%m-%d %H:%M:%S")
    clusters = str(version.n_centroids)
    return (str(version.number), version.state.value, version.origin, clusters, union, made)


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is no RFC 3339 time", param_hint="--at") from error
    if moment.tzinfo is None:
        raise click.BadParameter(f"{text!r} has no time zone", param_hint="--at")
    return moment
