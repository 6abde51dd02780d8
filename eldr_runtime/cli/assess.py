"""`eldr assess`: whether there is anything to gain on some traffic, before anything is deployed."""

from collections.abc import Iterator
from pathlib import Path

import click

from eldr_runtime.cli import report_figures
from eldr_runtime.cli.calibrate import workers_option
from eldr_runtime.cli.calibration_sections import percent_with_interval
from eldr_runtime.cli.console import (
    json_option,
    print_facts,
    print_json,
    print_table,
    report_option,
    say,
    seed_option,
    stage_progress,
)
from eldr_runtime.cli.report_html import ReportSection, ReportTable, write_report
from eldr_runtime.cli.shipped import open_given_trace
from eldr_runtime.cli.traces import say_note, trace_argument
from eldr_runtime.held_out_union import ClusterChange
from eldr_runtime.json_values import to_json_value
from eldr_runtime.latency_model import PRESETS, find_preset
from eldr_runtime.readiness import assess
from eldr_runtime.readiness_report import CategoryGain, ReadinessReport, Verdict

VERDICTS = {
    Verdict.WORTH_IT: "worth it",
    Verdict.NOTHING_TO_GAIN: "nothing to gain",
    Verdict.INCONCLUSIVE: "inconclusive",
}


@click.command("assess")
@trace_argument
@workers_option
@click.option(
    "--preset",
    "preset_name",
    type=click.Choice(sorted(PRESETS)),
    help="Also predict the change of time per output token with this step-time model, of the trace's shape.",
)
@seed_option
@json_option
@report_option
def assess_command(
    path: Path | None,
    n_workers: int,
    preset_name: str | None,
    seed: int,
    as_json: bool,
    report_path: Path | None,
) -> None:
    """Say whether there is anything to gain on the traffic of a trace, and for which categories."""
    trace = open_given_trace(path)
    preset = None if preset_name is None else find_preset(preset_name)
    with stage_progress() as on_stage:
        report = assess(trace, n_clusters=n_workers, step_time=preset, seed=seed, on_progress=on_stage)
    if report_path is not None:
        title = f"Is there anything to gain? {trace.shape.model} on {n_workers} decode workers"
        write_report(report_path, title, readiness_sections(report))
    if as_json:
        print_json(to_json_value(report))
    else:
        _print_for_people(report)
    say_note(trace)


def readiness_sections(report: ReadinessReport) -> tuple[ReportSection, ...]:
    """Return the report's sections about an assessment."""
    return (_verdict_section(report), *_gain_section(report), *_category_section(report))


def gain_table(report: ReadinessReport) -> ReportTable:
    """Return gain, oracle bound and predicted time per output token by batch size."""
    oracle = {one.batch_size: f"{one.percent:+z.1f} %" for one in report.oracle}
    tpot = {one.batch_size: percent_with_interval(one.percent, one.interval) for one in report.predicted_tpot}
    columns: tuple[str, ...] = ("batch", "experts loaded (95 % interval)", "best grouping found")
    rows: list[tuple[str, ...]] = [
        (
            str(one.batch_size),
            percent_with_interval(one.mean_percent, one.interval),
            oracle.get(one.batch_size, ""),
        )
        for one in report.gain
    ]
    if tpot:
        columns = (*columns, "predicted time per output token")
        rows = [(*row, tpot.get(one.batch_size, "")) for row, one in zip(rows, report.gain, strict=True)]
    return ReportTable(columns=columns, rows=tuple(rows))


def _print_for_people(report: ReadinessReport) -> None:
    print_facts(f"Verdict: {VERDICTS[report.verdict]}", [("-", sentence) for sentence in report.sentences])
    if report.gain:
        table = gain_table(report)
        print_table("Against mixed batches, on requests the fit has not seen", table.columns, table.rows)
    if report.clusters:
        print_table(
            f"By cluster, batch {report.decided_at_batch_size}",
            ("cluster", "requests", "experts loaded"),
            [_cluster_row(one) for one in report.clusters],
        )
    judged = _judged_categories(report)
    if judged:
        rows = [(*_category_row(one), one.finding.value.replace("_", " ")) for one in judged]
        columns = ("category", "requests", "experts loaded (95 % interval)", "finding")
        print_table(f"Batches of one category, batch {report.category_batch_size}", columns, rows)
    if report.n_left_out:
        say(f"{report.n_left_out} requests without expert counts left out")


def _verdict_section(report: ReadinessReport) -> ReportSection:
    note = [f"Note: {report.signature_note}."] if report.signature_note else []
    facts = [("verdict", VERDICTS[report.verdict]), ("requests", f"{report.n_requests:,}")]
    facts.append(("decode workers", str(report.n_clusters)))
    if report.preset_name is not None:
        uncertainty = report.preset_uncertainty_percent
        known = "uncertainty not stated" if uncertainty is None else f"+-{uncertainty:g} %"
        facts.append(("step times", f"{report.preset_name}, {known}"))
    text = "\n".join([*report.sentences, *note])
    return ReportSection(title="Is there anything to gain?", text=text, facts=tuple(facts))


def _gain_section(report: ReadinessReport) -> Iterator[ReportSection]:
    if not report.gain:
        return
    rows = [(one.batch_size, one.mean_percent, one.interval) for one in report.gain]
    yield ReportSection(
        title="Gain by batch size",
        text="Change of the distinct experts a layer loads when requests are grouped by nearest centroid, on "
        "requests the fit has not seen. The best grouping found knows the true decode use; no router does.",
        figure=report_figures.union_by_batch(rows, None),
        table=gain_table(report),
    )


def _category_section(report: ReadinessReport) -> Iterator[ReportSection]:
    judged = [(one.category, one.percent, one.interval) for one in _judged_categories(report)]
    rows = [(name, percent, interval) for name, percent, interval in judged if percent is not None]
    if rows:
        size = report.category_batch_size
        yield ReportSection(
            title="Gain by category",
            text="Batches of one category against mixed ones. What lies to the right of zero loads more "
            "experts among its own kind than in a mix. Categories smaller than a batch are not shown.",
            figure=report_figures.gain_by_category(rows, f"change of distinct experts at batch {size} (%)"),
        )


def _judged_categories(report: ReadinessReport) -> list[CategoryGain]:
    return [one for one in report.categories if one.percent is not None]


def _cluster_row(one: ClusterChange) -> tuple[str, str, str]:
    change = "too small" if one.percent is None else f"{one.percent:+z.1f} %"
    return str(one.cluster), f"{one.n_requests:,}", change


def _category_row(one: CategoryGain) -> tuple[str, str, str]:
    change = "" if one.percent is None else percent_with_interval(one.percent, one.interval)
    return one.category, f"{one.n_requests:,}", change
