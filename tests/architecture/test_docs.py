from pathlib import Path

import click

from controlplane.cli.main import cli
from eldr_runtime.cli.reference import render_reference


def test_command_reference_is_what_the_commands_say(repository: Path) -> None:
    written = (repository / "docs" / "cli.md").read_text()
    assert written == render_reference(cli, "eldr"), "run `make docs`"


def test_every_command_and_option_explains_itself() -> None:
    silent = []
    pending: list[tuple[str, click.Command]] = [("eldr", cli)]
    while pending:
        name, command = pending.pop()
        if not command.help:
            silent.append(name)
        silent += [
            f"{name} {parameter.opts[0]}"
            for parameter in command.params
            if isinstance(parameter, click.Option) and not parameter.help
        ]
        if isinstance(command, click.Group):
            context = click.Context(command)
            for child in command.list_commands(context):
                nested = command.get_command(context, child)
                assert nested is not None, child
                pending.append((f"{name} {child}", nested))
    assert silent == []
