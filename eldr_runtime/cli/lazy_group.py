"""A click group that imports a command when it is called for.

A process of `eldr up` needs one command of twenty; importing all of them takes seconds of a core.
"""

from collections.abc import Mapping
from importlib import import_module

import click


class LazyGroup(click.Group):
    """Commands by name, each where it is defined as ``package.module:attribute``; others can be added."""

    def __init__(self, *, places: Mapping[str, str], help: str) -> None:
        settings = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
        super().__init__(help=help, context_settings=settings)
        self.places = dict(places)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, sorted."""
        return sorted({*self.places, *self.commands})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None where there is none of that name."""
        place = self.places.get(cmd_name)
        if place is None:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = place.partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command), place
        return command
