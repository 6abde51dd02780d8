"""`eldr keys`: list, create, revoke."""

import click

from controlplane.cli.connection import admin_client_options, reason_option
from controlplane.client import ControlPlaneClient
from controlplane.domain.alerts import CreateApiKey, Role
from eldr_runtime.cli.console import json_option, print_json, print_table
from eldr_runtime.cli.numbers import NumberRange
from eldr_runtime.json_values import to_json_value


@click.group("keys")
def keys_group() -> None:
    """Make and revoke API keys; every command here needs one of the role admin."""


@keys_group.command("list")
@admin_client_options
@json_option
def list_keys(client: ControlPlaneClient, as_json: bool) -> None:
    """List the keys, without their secrets."""
    keys = client.keys()
    if as_json:
        print_json(to_json_value(keys))
        return
    rows = [
        (key.id, key.name, key.role.value, "revoked" if key.revoked_at else _until(key.expires_at))
        for key in keys
    ]
    print_table("Keys", ("key", "name", "role", "usable"), rows)


@keys_group.command("create")
@click.argument("name")
@click.option(
    "--role", type=click.Choice([role.value for role in Role]), required=True, help="What it may do."
)
@click.option("--expires-in", type=NumberRange(min=1), metavar="SECONDS", help="Useless after that.")
@reason_option
@admin_client_options
@json_option
def create_key(
    client: ControlPlaneClient, name: str, role: str, expires_in: float | None, reason: str, as_json: bool
) -> None:
    """Make a key called NAME; its secret is printed once."""
    command = CreateApiKey(name=name, role=Role(role), reason=reason, expires_in_seconds=expires_in)
    made = client.create_key(command)
    if as_json:
        print_json(to_json_value(made))
    else:
        click.echo(made.secret)


@keys_group.command("revoke")
@click.argument("key_id")
@reason_option
@admin_client_options
def revoke_key(client: ControlPlaneClient, key_id: str, reason: str) -> None:
    """Make a key useless from now on."""
    key = client.revoke_key(key_id, reason)
    click.echo(f"{key.name} is revoked")


def _until(moment: object) -> str:
    return "for good" if moment is None else f"until {moment}"
