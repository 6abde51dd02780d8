"""Run as a module it prints the reference of all `eldr` commands, which is docs/cli.md."""

import click

from controlplane.cli.main import cli
from eldr_runtime.cli.reference import render_reference

if __name__ == "__main__":
    click.echo(render_reference(cli, "eldr"), nl=False)
