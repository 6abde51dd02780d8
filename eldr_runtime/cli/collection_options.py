"""The options by which a command records a trace through a live fleet."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from eldr_runtime.cli.console import say
from eldr_runtime.cli.numbers import NumberRange
from eldr_runtime.cli.option_group import option_group
from eldr_runtime.expert_trace import ExpertTrace
from eldr_runtime.prompt_file import PromptFile, read_prompts
from eldr_runtime.trace_collection.collector import Failure, collect, find_model
from eldr_runtime.trace_collection.spool import CollectionSettings, Spool, build_trace
from eldr_runtime.trace_files import save_trace

SEED = 1

_OPTIONS = (
    click.option(
        "--prompts",
        "prompts_file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Record the trace now: a file with one JSON object a line, its prompt in `text`.",
    ),
    click.option("--router", "router_url", metavar="URL", help="Router of the fleet that serves --prompts."),
    click.option("--label", "label_field", metavar="FIELD", help="Field of --prompts with the category."),
    click.option("--limit", type=click.IntRange(min=1), help="Take the first so many of --prompts."),
    click.option(
        "--output-tokens",
        type=click.IntRange(1, 30_000),
        default=128,
        show_default=True,
        help="Tokens to generate a prompt.",
    ),
    click.option(
        "--temperature",
        type=NumberRange(0, 2),
        default=0.8,
        show_default=True,
        help="Of --prompts; greedy answers loop and look more alike than real ones.",
    ),
    click.option(
        "--concurrency",
        type=click.IntRange(1, 1024),
        default=8,
        show_default=True,
        help="Of --prompts: requests at a time.",
    ),
    click.option(
        "--save-pack",
        "pack",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Trace pack for what --prompts recorded; by default named like --prompts, in this folder.",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """A trace to be recorded. What is there already of an interrupted run is not asked again."""

    prompts_file: Path
    router_url: str
    label_field: str | None
    limit: int | None
    output_tokens: int
    temperature: float
    concurrency: int
    pack: Path

    def run(self) -> ExpertTrace:
        """Record the trace, showing progress; Ctrl-C keeps what has come."""
        found = read_prompts(
            self.prompts_file,
            required=() if self.label_field is None else (self.label_field,),
            limit=self.limit,
        )
        settings = CollectionSettings(
            prompts_hash=found.content_hash,
            model=asyncio.run(find_model(self.router_url)),
            output_tokens=self.output_tokens,
            temperature=self.temperature,
            seed=SEED,
        )
        spool = Spool.open(self._spool_path(), settings)
        if spool.collected:
            say(f"going on with {len(spool.collected):,} prompts of {spool.path}")
        try:
            failures = self._collect(found, spool)
        except KeyboardInterrupt:
            say(f"{len(spool.collected):,} prompts are kept in {spool.path}; the same command goes on")
            raise
        for failure in failures:
            say(f"left out {failure.prompt_id}: {failure.reason}")
        trace = build_trace(
            found.prompts,
            spool.collected,
            label_field=self.label_field,
            source=f"recorded from {self.prompts_file.name}",
        )
        save_trace(trace, self.pack)
        say(f"wrote {self.pack}")
        spool.close()
        return trace

    def _collect(self, found: PromptFile, spool: Spool) -> tuple[Failure, ...]:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True)) as progress:
            task = progress.add_task("prompts", total=len(found.prompts), completed=len(spool.collected))
            return asyncio.run(
                collect(
                    found.prompts,
                    spool,
                    self.router_url,
                    concurrency=self.concurrency,
                    on_progress=lambda done, total: progress.update(task, completed=done, total=total),
                )
            )

    def _spool_path(self) -> Path:
        return self.pack.with_name(f"{self.pack.name}.partial")


def _collection(
    prompts_file: Path | None,
    router_url: str | None,
    label_field: str | None,
    limit: int | None,
    output_tokens: int,
    temperature: float,
    concurrency: int,
    pack: Path | None,
) -> Collection | None:
    if (prompts_file is None) != (router_url is None):
        raise click.UsageError("--prompts and --router go together")
    if prompts_file is None or router_url is None:
        return None
    return Collection(
        prompts_file=prompts_file,
        router_url=router_url.rstrip("/"),
        label_field=label_field,
        limit=limit,
        output_tokens=output_tokens,
        temperature=temperature,
        concurrency=concurrency,
        pack=pack or Path(prompts_file.name).with_suffix(".safetensors"),
    )


collection_options = option_group("collection", _OPTIONS, _collection)
"""Adds the options, and gives them to the command as its argument `collection`: None without --prompts."""
