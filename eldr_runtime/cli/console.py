"""What every command shares: JSON and tables on stdout, notes and progress on stderr, whole files or none."""

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

TABLE_WIDTH_WHEN_PIPED = 120

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON alone on stdout.")
report_option = click.option(
    "--report",
    "report_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write a self-contained HTML report to this file.",
)
seed_option = click.option(
    "--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Seed of every random draw."
)


class OnStage(Protocol):
    """Called by a long computation with its stage and the share of that stage that is done."""

    def __call__(self, stage: StrEnum, share: float, /) -> None: ...


def say(text: str) -> None:
    """Write one line for people on stderr."""
    Console(stderr=True, soft_wrap=True, highlight=False).print(Text(text))


def print_json(document: object) -> None:
    """Write one JSON document on stdout; a number that is not finite is a fault and raises ValueError."""
    click.echo(json.dumps(document, indent=2, allow_nan=False))


def print_facts(title: str, facts: Sequence[tuple[str, str]]) -> None:
    """Write names and values on stdout, one pair a line."""
    table = Table(title=title, title_justify="left", title_style="bold", show_header=False, box=None)
    table.add_column(style="dim")
    table.add_column()
    for name, value in facts:
        table.add_row(Text(name), Text(value))
    _stdout().print(table)


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write a table on stdout: the first column to the left, the others to the right."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for position, column in enumerate(columns):
        table.add_column(column, justify="left" if position == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    _stdout().print(table)


@contextmanager
def stage_progress() -> Iterator[OnStage]:
    """Show one progress bar a stage on stderr while the block runs; none where stderr is no terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task_of: dict[str, TaskID] = {}

        def on_stage(stage: StrEnum, share: float, /) -> None:
            name = stage.value.replace("_", " ")
            if name not in task_of:
                task_of[name] = progress.add_task(name, total=1.0)
            progress.update(task_of[name], completed=share)

        yield on_stage


def write_atomically(path: Path, content: bytes) -> None:
    """Write a whole file or none: a temporary file in the same folder takes the name once it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _stdout() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=TABLE_WIDTH_WHEN_PIPED)
