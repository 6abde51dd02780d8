"""`eldr calibrate`: fit a centroid version to a trace and say how good it is."""

from pathlib import Path

import click

from eldr_runtime.calibration import CalibrationResult, CalibrationSettings, calibrate
from eldr_runtime.calibration_report import CalibrationReport
from eldr_runtime.centroid_version import save_version
from eldr_runtime.cli.calibration_sections import calibration_facts, calibration_sections, held_out_table
from eldr_runtime.cli.collection_options import Collection, collection_options
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
from eldr_runtime.cli.report_html import write_report
from eldr_runtime.cli.shipped import open_given_trace
from eldr_runtime.cli.traces import say_note, trace_argument
from eldr_runtime.expert_trace import ExpertTrace
from eldr_runtime.signature import TransformName

workers_option = click.option(
    "--workers",
    "n_workers",
    type=click.IntRange(min=1),
    default=8,
    show_default=True,
    help="Decode workers, so clusters.",
)


@click.command("calibrate")
@trace_argument
@collection_options
@workers_option
@click.option(
    "--transform",
    type=click.Choice([name.value for name in TransformName]),
    default=TransformName.COUNT_IDF.value,
    show_default=True,
    help="How expert counts become a signature.",
)
@seed_option
@click.option(
    "--layers/--no-layers",
    "select_layers",
    default=True,
    show_default=True,
    help="Choose the layers that predict decode use best, or keep them all (needs no decode counts).",
)
@click.option(
    "--starts",
    "n_starts",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="Starts of the clustering, of which the best is kept; 1 is the published fit.",
)
@click.option(
    "--splits",
    "n_splits",
    type=click.IntRange(min=2),
    default=20,
    show_default=True,
    help="Splits into halves that the version is judged on.",
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the centroid version to this file; without it nothing is written.",
)
@json_option
@report_option
def calibrate_command(
    path: Path | None,
    collection: Collection | None,
    n_workers: int,
    transform: str,
    seed: int,
    select_layers: bool,
    n_starts: int,
    n_splits: int,
    output: Path | None,
    as_json: bool,
    report_path: Path | None,
) -> None:
    """Fit a centroid version to a trace, and judge it on requests it did not see.

    The trace is PATH, or it is recorded now, from --prompts through the fleet behind --router. Without
    either it is the one recorded from the project's tiny MoE.
    """
    trace = _trace(path, collection)
    settings = CalibrationSettings(
        n_clusters=n_workers,
        transform=TransformName(transform),
        seed=seed,
        select_layers=select_layers,
        n_starts=n_starts,
        n_splits=n_splits,
    )
    with stage_progress() as on_stage:
        result = calibrate(trace, settings, on_stage)
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        save_version(result.version, output)
    if report_path is not None:
        title = f"Calibration of {trace.shape.model} for {n_workers} decode workers"
        write_report(report_path, title, calibration_sections(result.report))
    _print(result, output, as_json)
    say_note(trace)


def _trace(path: Path | None, collection: Collection | None) -> ExpertTrace:
    if collection is None:
        return open_given_trace(path)
    if path is not None:
        raise click.UsageError("give either PATH, or --prompts and --router")
    return collection.run()


def _print(result: CalibrationResult, output: Path | None, as_json: bool) -> None:
    if as_json:
        written = None if output is None else str(output)
        print_json({**result.report.to_json(), "output": written})
        return
    _print_for_people(result.report)
    say("nothing written; --output FILE keeps the version" if output is None else f"wrote {output}")


def _print_for_people(report: CalibrationReport) -> None:
    print_facts("Centroid version", calibration_facts(report))
    table = held_out_table(report)
    if table is not None:
        print_table("Distinct experts a layer, against mixed batches, held out", table.columns, table.rows)
