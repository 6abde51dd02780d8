"""A command reference in Markdown, written from the commands themselves."""

from collections.abc import Iterator

import click

HEAD = """\
# Commands

Written from the commands themselves by `make docs`; a test compares the two.

Every command prints tables for people on stdout, or one JSON document with `--json`; notes and progress go to
stderr. Exit status: 0 done, 2 refused (with one line that says why), 130 interrupted. Files are written whole
or not at all.
"""


def render_reference(command: click.Command, name: str) -> str:
    """Return the Markdown page of a command and everything under it."""
    return HEAD + "".join(_sections(command, name, parent=None))


def _sections(command: click.Command, name: str, parent: click.Context | None) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=parent)
    if isinstance(command, click.Group):
        for child_name in command.list_commands(context):
            child = command.get_command(context, child_name)
            assert child is not None, child_name
            yield from _sections(child, child_name, context)
    else:
        yield f"\n## {context.command_path}\n\n{_sentences(command)}\n\n"
        yield f"`{' '.join([context.command_path, *command.collect_usage_pieces(context)])}`\n\n"
        yield "".join(_option_lines(command, context))


def _sentences(command: click.Command) -> str:
    return " ".join((command.help or "").split())


def _option_lines(command: click.Command, context: click.Context) -> Iterator[str]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and "--help" not in parameter.opts:
            names, text = record
            yield f"- `{names}`: {' '.join(text.split())}\n"
