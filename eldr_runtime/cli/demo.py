"""`eldr demo`: the whole way from a trace to a prediction, on data it makes itself, in one report."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from eldr_runtime.calibration import CalibrationResult, CalibrationSettings, calibrate
from eldr_runtime.centroid_version import save_version
from eldr_runtime.cli.assess import VERDICTS, readiness_sections
from eldr_runtime.cli.calibration_sections import calibration_sections, percent_with_interval
from eldr_runtime.cli.console import print_facts, print_table, say, stage_progress
from eldr_runtime.cli.report_html import ReportSection, ReportTable, write_report
from eldr_runtime.cli.simulate_report import Simulated, sections, table_columns, table_rows, title
from eldr_runtime.cli.traces import trace_sections
from eldr_runtime.expert_trace import ExpertTrace
from eldr_runtime.latency_model import LatencyPreset, find_preset
from eldr_runtime.policies.choice import PolicyName, PolicySettings
from eldr_runtime.readiness import assess
from eldr_runtime.readiness_report import ReadinessReport
from eldr_runtime.simulation.cluster import ClusterSettings
from eldr_runtime.simulation.replay import Scenario, enough_profiles
from eldr_runtime.simulation.what_if import WhatIf, run_what_if
from eldr_runtime.simulation.workload import calibration_trace
from eldr_runtime.simulation.workload_settings import MixName, WorkloadSettings
from eldr_runtime.trace_files import save_trace
from eldr_runtime.trace_import import open_trace

PRESET = "qwen3-30b-a3b-mi300x"
POLICIES = (PolicyName.ELDR, PolicyName.ELDR_CAPPED, PolicyName.JOIN_SHORTEST_QUEUE, PolicyName.ROUND_ROBIN)
DECIDING_BATCH_SIZE = 16
REPORT_TITLE = "ELDR, from a trace to a prediction"
REPORT_TEXT = (
    "First what was recorded, then whether there is anything to gain on it, then the centroid version fitted "
    "to it, and at the end what routing by that version does to a simulated cluster."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSize:
    """How much the demo does; the defaults take about a minute of one core."""

    n_requests: int = 400
    n_workers: int = 8
    n_splits: int = 6
    n_simulated: int = 4000
    n_simulated_workers: int = 16
    rate_per_second: float = 60.0
    n_calibration: int = 600
    n_seeds: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """What one trace came to."""

    name: str
    trace: ExpertTrace
    readiness: ReadinessReport
    calibration: CalibrationResult


@click.command("demo")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("out"),
    show_default=True,
    help="Folder for the pack, the versions and the report.",
)
@click.option(
    "--trace",
    "trace_paths",
    type=click.Path(exists=True, path_type=Path),
    multiple=True,
    help="A recorded trace with decode counts to go through first; may be given more than once.",
)
def demo_command(output: Path, trace_paths: tuple[Path, ...]) -> None:
    """Assess, calibrate and simulate on a generated trace, and on recorded ones where they are given."""
    run_demo(output, trace_paths, DemoSize())


def run_demo(output: Path, trace_paths: tuple[Path, ...], size: DemoSize) -> None:
    """Go the whole way and write pack, versions and report into a folder."""
    output.mkdir(parents=True, exist_ok=True)
    chapters = [_go_through(path.resolve().stem, open_trace(path), size, output) for path in trace_paths]
    chapters.append(_go_through("generated", _generate(size, output), size, output))
    simulated = _simulate(size)
    report = output / "report.html"
    write_report(report, REPORT_TITLE, list(_report_sections(chapters, simulated)))
    _print_summary(chapters, simulated, output)
    say(f"look at {report}")


def _generate(size: DemoSize, output: Path) -> ExpertTrace:
    say(f"generating {size.n_requests} requests of balanced traffic")
    settings = WorkloadSettings(mix=MixName.BALANCED, shape=find_preset(PRESET).shape)
    trace = calibration_trace(settings, n_requests=size.n_requests, seed=1)
    save_trace(trace, output / "generated.safetensors")
    return trace


def _go_through(name: str, trace: ExpertTrace, size: DemoSize, output: Path) -> Chapter:
    say(f"{name}: is there anything to gain?")
    with stage_progress() as on_stage:
        readiness = assess(
            trace,
            n_clusters=size.n_workers,
            step_time=_preset_of(trace),
            n_splits=size.n_splits,
            on_progress=on_stage,
        )
    say(f"{name}: fitting a version for {size.n_workers} decode workers")
    with stage_progress() as on_stage:
        settings = CalibrationSettings(n_clusters=size.n_workers, n_splits=size.n_splits)
        calibration = calibrate(trace, settings, on_stage)
    save_version(calibration.version, output / f"{name}.version.safetensors")
    return Chapter(name=name, trace=trace, readiness=readiness, calibration=calibration)


def _preset_of(trace: ExpertTrace) -> LatencyPreset | None:
    """Return step times for traces of the preset's shape; other shapes get no prediction."""
    preset = find_preset(PRESET)
    return preset if preset.shape.counts_shape == trace.shape.counts_shape else None


def _simulate(size: DemoSize) -> Simulated:
    say(f"simulating {size.n_simulated_workers} decode workers, {size.n_seeds} runs of each policy")
    preset = find_preset(PRESET)
    workload = WorkloadSettings(mix=MixName.BALANCED, shape=preset.shape)
    cluster = ClusterSettings.of_preset(
        preset, n_decode_workers=size.n_simulated_workers, n_prefill_workers=size.n_simulated_workers // 2
    )
    n_profiles = enough_profiles(cluster, workload, size.rate_per_second)
    scenario = Scenario(
        workload=WorkloadSettings(mix=MixName.BALANCED, shape=preset.shape, n_profiles=n_profiles),
        cluster=cluster,
        n_requests=size.n_simulated,
        rate_per_second=size.rate_per_second,
    )
    what_if = WhatIf(
        scenario=scenario,
        policies=tuple(PolicySettings(policy=name) for name in POLICIES),
        n_calibration_requests=size.n_calibration,
        n_seeds=size.n_seeds,
    )
    return Simulated(preset=preset, what_if=what_if, result=run_what_if(what_if))


def _report_sections(chapters: list[Chapter], simulated: Simulated) -> Iterator[ReportSection]:
    summary = ReportTable(
        columns=("trace", "verdict", "experts loaded", "control"), rows=_summary_rows(chapters)
    )
    yield ReportSection(title="In short", text=REPORT_TEXT, facts=_simulated_facts(simulated), table=summary)
    for chapter in chapters:
        what = f"{len(chapter.trace):,} requests of {chapter.trace.shape.model}. {chapter.trace.source}."
        yield ReportSection(title=f"Trace: {chapter.name}", text=what, is_chapter=True)
        yield from trace_sections(chapter.trace)
        yield from readiness_sections(chapter.readiness)
        yield from calibration_sections(chapter.calibration.report)
    yield ReportSection(title="Simulated cluster", text=f"{title(simulated)}.", is_chapter=True)
    yield from sections(simulated)


def _simulated_facts(simulated: Simulated) -> tuple[tuple[str, str], ...]:
    """Return the change of the median time per output token of each policy but the baseline."""
    comparison = simulated.result.comparison
    return tuple(
        (
            f"{row.settings.policy.value}, simulated time per output token",
            percent_with_interval(row.tpot_median_change.mean_percent, row.tpot_median_change.interval),
        )
        for row in comparison.rows
        if row.settings.policy is not comparison.baseline
    )


def _print_summary(chapters: list[Chapter], simulated: Simulated, output: Path) -> None:
    columns = ("trace", "verdict", f"experts loaded, batch {DECIDING_BATCH_SIZE}", "control")
    print_table("Is there anything to gain?", columns, _summary_rows(chapters))
    print_table(title(simulated), table_columns(), table_rows(simulated))
    files = [(path.name, f"{path.stat().st_size / 1e6:.1f} MB") for path in sorted(output.iterdir())]
    print_facts(f"In {output}", files)


def _summary_rows(chapters: list[Chapter]) -> tuple[tuple[str, ...], ...]:
    return tuple(_summary_row(chapter) for chapter in chapters)


def _summary_row(chapter: Chapter) -> tuple[str, ...]:
    report = chapter.calibration.report
    judged = report.held_out_at(DECIDING_BATCH_SIZE)
    change = "not judged" if judged is None else percent_with_interval(judged.mean_percent, judged.interval)
    control = report.control_random_labels_percent
    return (
        chapter.name,
        VERDICTS[chapter.readiness.verdict],
        change,
        "not judged" if control is None else f"{control:+.2f} %",
    )
