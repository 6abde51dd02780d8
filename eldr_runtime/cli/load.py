"""`eldr load`: an open-loop load generator that counts failures exactly."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np

from eldr_runtime.cli.console import json_option, print_facts, print_json, print_table, say
from eldr_runtime.cli.numbers import NumberRange
from eldr_runtime.cli.pool_options import pool_options
from eldr_runtime.json_values import to_json_value
from eldr_runtime.simulated_fleet.load_generator import LoadSettings
from eldr_runtime.simulated_fleet.load_process import run_load
from eldr_runtime.simulated_fleet.load_statistics import LoadSummary
from eldr_runtime.simulated_fleet.pool_source import PoolSource, unseen_topic
from eldr_runtime.simulated_fleet.prompt_set import PromptSet, read_prompt_set
from eldr_runtime.simulated_fleet.traffic_mix import TrafficMix, topic_shares_of


@click.command("load")
@click.option(
    "--router", "router_url", required=True, help="Address of the router, such as http://127.0.0.1:8080."
)
@click.option(
    "--rate",
    type=NumberRange(min=0, min_open=True),
    default=45.0,
    show_default=True,
    help="Requests a second, on average; they come at Poisson times.",
)
@pool_options
@click.option(
    "--prompts",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Send the texts of this file of JSON lines (text, task, language) to a real model; needs --model.",
)
@click.option(
    "--output-tokens",
    type=click.IntRange(1, 30_000),
    default=192,
    show_default=True,
    help="Tokens to generate a request.",
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC=SHARE",
    help="Share of a topic among the requests; can be repeated. Without it, as the workload says, or equal.",
)
@click.option(
    "--unseen-topic",
    "unseen",
    default="last",
    show_default=True,
    help="Topic kept back until its share is set: a name, last (by name), or none.",
)
@click.option(
    "--unseen-share",
    type=NumberRange(0, 1),
    default=0.0,
    show_default=True,
    help="Share of the requests that are of the unseen topic from the start; POST /mix changes it.",
)
@click.option(
    "--for",
    "duration_seconds",
    type=NumberRange(min=0, min_open=True),
    help="Send for so many seconds; without it, until SIGTERM or Ctrl-C.",
)
@click.option(
    "--drain-seconds",
    type=NumberRange(min=0),
    default=60.0,
    show_default=True,
    help="How long requests in flight may finish at the end.",
)
@click.option(
    "--max-in-flight",
    type=click.IntRange(min=1),
    default=2000,
    show_default=True,
    help="Requests beyond this many are not sent and count as failed.",
)
@click.option(
    "--control-port",
    type=click.IntRange(0, 65_535),
    default=0,
    show_default=True,
    help="Port of POST /mix and GET /status; 0 takes a free one.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address the control port listens on.")
@json_option
def load_command(
    source: PoolSource,
    router_url: str,
    rate: float,
    output_tokens: int,
    topics: tuple[str, ...],
    unseen: str,
    unseen_share: float,
    duration_seconds: float | None,
    drain_seconds: float,
    max_in_flight: int,
    control_port: int,
    host: str,
    as_json: bool,
) -> None:
    """Send streamed completions to a router at a fixed mean rate, and say how they fared.

    Requests come whether or not earlier ones have ended. On SIGTERM those in flight finish first.
    """
    prompts = None if source.prompts is None else read_prompt_set(source.prompts)
    model, labels = _named(source, prompts)
    settings = LoadSettings(
        router_url=router_url.rstrip("/"),
        model=model,
        rate_per_second=rate,
        prompt_tokens=source.prompt_tokens,
        output_tokens=output_tokens,
        duration_seconds=duration_seconds,
        drain_seconds=drain_seconds,
        max_in_flight=max_in_flight,
        seed=source.seed,
        prompts=prompts,
    )
    kept_back = unseen_topic(labels, unseen)
    mix = TrafficMix(
        labels,
        unseen_topic=kept_back,
        topic_shares=topic_shares_of(topics) or source.topic_shares(kept_back),
        rng=np.random.default_rng([source.seed, 12]),
    )
    mix.set_unseen_share(unseen_share)
    run = run_load(settings, mix, host=host, control_port=control_port, on_started=_announce)
    summary = asyncio.run(run)
    if as_json:
        print_json(to_json_value(summary))
    else:
        _print_summary(summary)


def _named(source: PoolSource, prompts: PromptSet | None) -> tuple[str, Sequence[str]]:
    """Return the name of the model and the topic of each profile or prompt."""
    if prompts is not None and source.model is not None:
        return source.model, prompts.topics
    pool = source.open()
    return pool.shape.model, pool.labels


def _announce(control_url: str) -> None:
    say(f"control port: {control_url}")


def _print_summary(summary: LoadSummary) -> None:
    facts = [
        ("requests", f"{summary.sent:,} sent, {summary.finished:,} finished, {summary.failed:,} failed"),
        ("output", f"{summary.output_tokens_per_second:,.0f} tokens/s over {summary.seconds:.1f} s"),
        ("time to first token", _pair(summary.ttft_p50_ms, summary.ttft_p99_ms)),
        ("time per output token", _pair(summary.tpot_p50_ms, summary.tpot_p99_ms)),
    ]
    print_facts("Load", facts)
    if summary.failures:
        rows = [(kind, f"{n:,}") for kind, n in sorted(summary.failures.items())]
        print_table("Failures", ("reason", "requests"), rows)
        for error in summary.errors[-5:]:
            say(f"{error.request_id}: {error.reason}")


def _pair(p50_ms: float | None, p99_ms: float | None) -> str:
    if p50_ms is None or p99_ms is None:
        return "no request finished"
    return f"{p50_ms:.2f} ms median, {p99_ms:.2f} ms P99"
