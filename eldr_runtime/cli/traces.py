"""`eldr traces`: bring raw recordings into a trace pack, look into a pack, generate one."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

from eldr_runtime.array_types import Floats
from eldr_runtime.cli.console import (
    json_option,
    print_facts,
    print_json,
    print_table,
    report_option,
    say,
    seed_option,
)
from eldr_runtime.cli.report_figures import expert_use_map
from eldr_runtime.cli.report_html import ReportSection, ReportTable, write_report
from eldr_runtime.cli.shipped import RECORDED_TRACE, open_given_trace
from eldr_runtime.expert_trace import ExpertTrace
from eldr_runtime.model_shape import ModelShape
from eldr_runtime.simulation.request_profiles import calibration_trace
from eldr_runtime.simulation.workload_settings import DEFAULT_SHAPE, MixName, WorkloadSettings
from eldr_runtime.trace_files import save_trace
from eldr_runtime.trace_import import import_raw

MAX_CATEGORY_ROWS = 15

trace_argument = click.argument(
    "path",
    type=click.Path(exists=True, path_type=Path),
    required=False,
    metavar="[PATH]",
    help="A trace pack, or a folder of raw recordings; without it, the trace of the project's tiny MoE.",
)
pack_option = click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), required=True, help="Trace pack to write."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """What is in a trace, in the numbers that decide what can be done with it."""

    model: str
    n_layers: int
    n_experts: int
    top_k: int
    n_requests: int
    prompt_tokens: int
    prompt_tokens_median: float
    covered_share: float
    decode_steps: int | None
    decode_steps_median: float | None
    n_sessions: int | None
    has_gate_prob: bool
    has_gate_logit: bool
    has_arrivals: bool
    labels: tuple[tuple[str, int], ...]
    source: str
    licence: str
    signature_note: str | None

    def to_json(self) -> dict[str, object]:
        """Return the summary as one JSON object, labels as a name-to-count object."""
        document: dict[str, object] = {name: getattr(self, name) for name in self.__slots__}
        return {**document, "labels": dict(self.labels)}

    def facts(self) -> tuple[tuple[str, str], ...]:
        """Return the summary as names and values for people."""
        decode = "none"
        if self.decode_steps is not None:
            decode = f"{self.decode_steps:,} steps, median {self.decode_steps_median:,.0f} a request"
        gates = [name for name, has in (("prob", self.has_gate_prob), ("logit", self.has_gate_logit)) if has]
        return (
            ("model", self.model),
            ("experts", f"{self.n_experts} in {self.n_layers} layers, top {self.top_k}"),
            ("requests", f"{self.n_requests:,}"),
            ("prompt", f"{self.prompt_tokens:,} tokens, median {self.prompt_tokens_median:,.0f} a request"),
            ("experts known for", f"{100 * self.covered_share:.1f} % of prompt tokens"),
            ("decode", decode),
            ("categories", f"{len(self.labels)}" if self.labels else "none"),
            ("sessions", "none" if self.n_sessions is None else f"{self.n_sessions:,}"),
            ("gate values", ", ".join(gates) or "none"),
            ("source", self.source or "not given"),
            ("licence", self.licence or "not given"),
        )


def summarise(trace: ExpertTrace) -> TraceSummary:
    """Return what is in the trace."""
    shape, steps = trace.shape, trace.decode_steps
    return TraceSummary(
        model=shape.model,
        n_layers=shape.n_layers,
        n_experts=shape.n_experts,
        top_k=shape.top_k,
        n_requests=len(trace),
        prompt_tokens=int(trace.prompt_tokens.sum()),
        prompt_tokens_median=float(np.median(trace.prompt_tokens)),
        covered_share=float(trace.covered_tokens.sum() / trace.prompt_tokens.sum()),
        decode_steps=None if steps is None else int(steps.sum()),
        decode_steps_median=None if steps is None else float(np.median(steps)),
        n_sessions=None if trace.sessions is None else len(set(trace.sessions)),
        has_gate_prob=trace.gate_prob is not None,
        has_gate_logit=trace.gate_logit is not None,
        has_arrivals=trace.arrival_seconds is not None,
        labels=tuple(Counter(trace.labels or ()).most_common()),
        source=trace.source,
        licence=trace.licence,
        signature_note=trace.signature_note,
    )


def trace_sections(trace: ExpertTrace) -> tuple[ReportSection, ...]:
    """Return the report's sections about a trace."""
    summary = summarise(trace)
    note = f" Note: {trace.signature_note}." if trace.signature_note else ""
    facts = ReportSection(title="The trace", text=f"What was recorded.{note}", facts=summary.facts())
    use = ReportSection(
        title="How evenly the experts are used",
        text="A column is a layer, its experts sorted by use. 1 is an even share; what lies far above it is "
        "used by most requests, and no routing can avoid loading it.",
        figure=expert_use_map(_relative_use(trace)),
    )
    if not summary.labels:
        return (facts, use)
    table = ReportTable(columns=("category", "requests"), rows=_category_rows(summary))
    return (
        facts,
        use,
        ReportSection(title="Categories", text="Requests by true category.", table=table),
    )


@click.group("traces")
def traces_group() -> None:
    """Import, describe and generate trace packs: which experts the tokens of each request used."""


@traces_group.command("import")
@click.argument(
    "folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Folder that holds decode_topk.npz with requests.json, or prefill_counts.npz.",
)
@pack_option
@json_option
def import_command(folder: Path, output: Path, as_json: bool) -> None:
    """Turn a folder of raw recordings into one trace pack."""
    _save(import_raw(folder), output, as_json)


@traces_group.command("describe")
@trace_argument
@json_option
@report_option
def describe_command(path: Path | None, as_json: bool, report_path: Path | None) -> None:
    """Say what is in a trace pack or a folder of raw recordings."""
    trace = open_given_trace(path)
    summary = summarise(trace)
    if report_path is not None:
        write_report(report_path, f"Expert trace of {summary.model}", trace_sections(trace))
    if as_json:
        print_json(summary.to_json())
        return
    print_facts(str(path or RECORDED_TRACE), summary.facts())
    if summary.labels:
        print_table("Requests by category", ("category", "requests"), _category_rows(summary))
    say_note(trace)


@traces_group.command("generate")
@click.option(
    "--workload",
    "mix",
    type=click.Choice([mix.value for mix in MixName]),
    required=True,
    help="How requests spread over topics; uniform has no topics, so nothing to exploit.",
)
@click.option(
    "--requests",
    "n_requests",
    type=click.IntRange(min=2),
    default=1000,
    show_default=True,
    help="Requests to generate.",
)
@click.option(
    "--layers",
    "n_layers",
    type=click.IntRange(min=1),
    default=DEFAULT_SHAPE.n_layers,
    show_default=True,
    help="Layers that have experts.",
)
@click.option(
    "--experts",
    "n_experts",
    type=click.IntRange(min=2),
    default=DEFAULT_SHAPE.n_experts,
    show_default=True,
    help="Experts a layer.",
)
@click.option(
    "--top-k",
    type=click.IntRange(min=1),
    default=DEFAULT_SHAPE.top_k,
    show_default=True,
    help="Experts a token uses in each layer.",
)
@seed_option
@pack_option
@json_option
def generate_command(
    mix: str,
    n_requests: int,
    n_layers: int,
    n_experts: int,
    top_k: int,
    seed: int,
    output: Path,
    as_json: bool,
) -> None:
    """Generate requests by topic, with prefill and decode counts; not a recording of any model."""
    shape = ModelShape(
        model=f"generated-{n_layers}x{n_experts}", n_layers=n_layers, n_experts=n_experts, top_k=top_k
    )
    settings = WorkloadSettings(mix=MixName(mix), shape=shape, seed=seed)
    _save(calibration_trace(settings, n_requests=n_requests, seed=seed), output, as_json)


def say_note(trace: ExpertTrace) -> None:
    """Say on stderr what every figure from this trace rests on, where the trace has such a note."""
    if trace.signature_note:
        say(f"note: {trace.signature_note}")


def _save(trace: ExpertTrace, output: Path, as_json: bool) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    save_trace(trace, output)
    summary = summarise(trace)
    if as_json:
        print_json({"output": str(output), **summary.to_json()})
    else:
        print_facts(f"Wrote {output}", summary.facts())
    say_note(trace)


def _category_rows(summary: TraceSummary) -> tuple[tuple[str, str], ...]:
    shown, others = summary.labels[:MAX_CATEGORY_ROWS], summary.labels[MAX_CATEGORY_ROWS:]
    rows = tuple((name, f"{n:,}") for name, n in shown)
    if not others:
        return rows
    return (*rows, (f"{len(others)} others", f"{sum(n for _, n in others):,}"))


def _relative_use(trace: ExpertTrace) -> Floats:
    """Return each expert's use over an even share, sorted within its layer; float64 (n_layers, n_experts)."""
    counts = trace.prefill_counts if trace.decode_counts is None else trace.decode_counts
    pooled = counts.sum(axis=0, dtype=np.int64)
    return np.sort(pooled / pooled.mean(axis=1, keepdims=True), axis=1)
