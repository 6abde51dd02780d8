"""What `eldr simulate` says of a comparison: as a table, as JSON, as sections of a report."""

from dataclasses import asdict, dataclass

from eldr_runtime.cli.report_figures import change_by_policy
from eldr_runtime.cli.report_html import ReportSection, ReportTable
from eldr_runtime.latency_model import LatencyPreset
from eldr_runtime.simulation.replay import MOST_PROFILES, PairedChange, PolicyRow
from eldr_runtime.simulation.what_if import WhatIf, WhatIfResult

_COLUMNS = ("policy", "TPOT ms", "change %", "P99 ms", "change %", "TTFT ms", "batch", "experts", "load")


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """A comparison with all it was made of."""

    preset: LatencyPreset
    what_if: WhatIf
    result: WhatIfResult

    def to_json(self) -> dict[str, object]:
        """Return everything a reader needs to repeat and to judge the comparison."""
        scenario, comparison, version = self.what_if.scenario, self.result.comparison, self.result.version
        return {
            "workload": {
                **asdict(scenario.workload),
                "same_topic_reduction_percent_at_batch_16": self.result.same_topic_reduction_percent,
                "prefill_decode_correlation": self.result.prefill_decode_correlation,
            },
            "cluster": asdict(scenario.cluster),
            "preset": {
                "name": self.preset.name,
                "source": self.preset.source,
                "uncertainty_percent": self.preset.uncertainty_percent,
                "notes": self.preset.notes,
            },
            "rate_per_second": scenario.rate_per_second,
            "calibration": None
            if version is None
            else {
                "n_requests": version.n_requests,
                "seed": self.what_if.calibration_seed,
                "content_hash": version.content_hash,
                "n_centroids": version.n_centroids,
                "n_layers_kept": int(version.transform.layer_mask.sum()),
            },
            "n_requests": comparison.n_requests,
            "seeds": list(comparison.seeds),
            "n_measured": list(comparison.n_measured),
            "baseline": comparison.baseline.value,
            "interval_method": comparison.interval_method,
            "confidence": comparison.confidence,
            "policies": [_row_to_json(row) for row in comparison.rows],
            "notes": list(notes(self)),
        }


def title(simulated: Simulated) -> str:
    """Name the comparison."""
    scenario = simulated.what_if.scenario
    workload, cluster = scenario.workload, scenario.cluster
    return (
        f"{workload.mix.value.capitalize()} traffic, {scenario.rate_per_second:g} requests/s of "
        f"{workload.prompt_tokens} + {workload.output_tokens} tokens on {cluster.n_decode_workers} decode "
        f"workers, {simulated.preset.name}"
    )


def table_columns() -> tuple[str, ...]:
    """Name the columns of the table."""
    return _COLUMNS


def table_rows(simulated: Simulated) -> list[tuple[str, ...]]:
    """Return one row a policy."""
    return [
        (
            row.settings.policy.value,
            f"{row.figures.tpot_median_ms:.2f}",
            _change(row.tpot_median_change),
            f"{row.figures.tpot_p99_ms:.2f}",
            _change(row.tpot_p99_change),
            f"{row.figures.ttft_median_ms:.0f}",
            f"{row.figures.mean_batch:.1f}",
            f"{row.figures.mean_active_experts:.1f}",
            f"{row.figures.mean_load_ratio:.2f}",
        )
        for row in simulated.result.comparison.rows
    ]


def notes(simulated: Simulated) -> tuple[str, ...]:
    """Say what the figures rest on."""
    comparison, preset = simulated.result.comparison, simulated.preset
    uncertainty = preset.uncertainty_percent
    known = "of unknown uncertainty" if uncertainty is None else f"+-{uncertainty:g} %"
    interval = (
        f"± is a 95 % interval, {comparison.interval_method}"
        if len(comparison.seeds) > 1
        else "no interval, which takes two seeds"
    )
    reduction = simulated.result.same_topic_reduction_percent
    exploitable = "not measured" if reduction is None else f"{reduction:z.1f} %"
    lines = [
        "TPOT: median time per output token, then its P99; TTFT: median time to the first token; experts: "
        "active a layer and step; load: largest over mean in-flight requests",
        f"Change against {comparison.baseline.value}; {interval}",
        f"{min(comparison.n_measured)} to {max(comparison.n_measured)} of {comparison.n_requests} requests a "
        "run counted: warm-up and the end of the arrivals are left out, equally for all policies",
        f"Generated traffic: one topic's union is {exploitable} below that of mixed requests at batch 16; "
        f"prefill and decode use correlate at {simulated.result.prefill_decode_correlation:.2f}",
        f"Step times {known}: {preset.source}",
    ]
    if simulated.what_if.scenario.workload.n_profiles >= MOST_PROFILES:
        lines.append(
            f"More requests in flight than the {MOST_PROFILES} distinct ones can cover: copies share "
            "experts, so unions come out too small"
        )
    return tuple(lines)


def sections(simulated: Simulated) -> tuple[ReportSection, ...]:
    """Return the sections of the HTML report."""
    rows = simulated.result.comparison.rows
    others = [row for row in rows if row.settings.policy is not simulated.result.comparison.baseline]
    baseline = simulated.result.comparison.baseline.value
    parts = [
        ReportSection(
            title="What each policy came to",
            text="Means over seeds; changes are paired within a seed.",
            table=ReportTable(columns=table_columns(), rows=tuple(table_rows(simulated))),
        )
    ]
    for name, field in (("median", "tpot_median_change"), ("P99", "tpot_p99_change")):
        changes = [
            (row.settings.policy.value, getattr(row, field).mean_percent, getattr(row, field).interval)
            for row in others
        ]
        if changes:
            figure = change_by_policy(changes, f"change of {name} time per output token (%)")
            text = f"Against {baseline}; to the left of zero is faster. Bars are intervals, if there are any."
            parts.append(
                ReportSection(title=f"Change of the {name} time per output token", text=text, figure=figure)
            )
    return (*parts, ReportSection(title="What this rests on", text=". ".join(notes(simulated)) + "."))


def _row_to_json(row: PolicyRow) -> dict[str, object]:
    return {
        "policy": row.settings.policy.value,
        "tau": row.settings.tau,
        "load_cap": row.settings.effective_load_cap,
        **asdict(row.figures),
        "tpot_median_change": asdict(row.tpot_median_change),
        "tpot_p99_change": asdict(row.tpot_p99_change),
        "ttft_median_change": asdict(row.ttft_median_change),
    }


def _change(change: PairedChange) -> str:
    if change.interval is None:
        return f"{change.mean_percent:+z.1f}"
    return f"{change.mean_percent:+z.1f} ± {change.interval[1] - change.mean_percent:.1f}"
