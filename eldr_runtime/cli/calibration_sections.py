"""What a calibration found, as named values, a table, and sections of a report."""

from collections.abc import Iterator

from eldr_runtime.calibration_report import CalibrationReport
from eldr_runtime.cli import report_figures
from eldr_runtime.cli.report_html import ReportSection, ReportTable
from eldr_runtime.held_out_union import HeldOutUnion

LEAST_COVERED_SHARE = 0.9  # below it a held-out figure speaks for too few of the requests


def percent_with_interval(percent: float, interval: tuple[float, float] | None) -> str:
    """Return a signed percentage, with its interval where there is one."""
    if interval is None:
        return f"{percent:+z.1f} %"
    return f"{percent:+z.1f} % ({interval[0]:+z.1f} to {interval[1]:+z.1f})"


def calibration_facts(report: CalibrationReport) -> tuple[tuple[str, str], ...]:
    """Return what a version is, as names and values for people."""
    rho = "needs decode counts"
    if report.rho is not None:
        low, high = report.rho.interval
        rho = f"{report.rho.rho:.3f} ({low:.3f} to {high:.3f})"
    left_out = f", {report.n_left_out} without counts left out" if report.n_left_out else ""
    sizes = report.cluster_sizes
    return (
        ("content hash", report.content_hash[:12]),
        ("requests", f"{report.n_requests:,}{left_out}"),
        ("transform", report.transform.value),
        ("layers kept", str(report.n_layers_kept)),
        ("clusters", f"{report.n_clusters} of {min(sizes)} to {max(sizes)} requests"),
        ("rho", rho),
        ("held-out experts, batch 16", _at_16(report)),
        ("control, random labels", _control(report)),
    )


def held_out_table(report: CalibrationReport) -> ReportTable | None:
    """Return the held-out change by batch size, None where the trace has no decode counts."""
    if not report.held_out:
        return None
    rows = []
    for batch_size in report.held_out_batch_sizes:
        judged = report.held_out_at(batch_size)
        if judged is None:
            rows.append((str(batch_size), "no cluster is that large", "", ""))
        else:
            low, high = judged.interval
            rows.append(
                (
                    str(batch_size),
                    f"{judged.mean_percent:+z.1f} %",
                    f"{low:+z.1f} to {high:+z.1f} %",
                    _covered(judged),
                )
            )
    return ReportTable(columns=("batch", "change", "95 % interval", "requests covered"), rows=tuple(rows))


def calibration_sections(report: CalibrationReport) -> tuple[ReportSection, ...]:
    """Return the report's sections about a calibration."""
    note = f" Note: {report.signature_note}." if report.signature_note else ""
    facts = ReportSection(
        title="The centroid version",
        text=f"Fitted on the whole trace; judged on halves that a fit on the other half has not seen.{note}",
        facts=calibration_facts(report),
    )
    return (facts, *_held_out_section(report), *_quality_sections(report), *_cluster_sections(report))


def _held_out_section(report: CalibrationReport) -> Iterator[ReportSection]:
    if not report.held_out:
        return
    rows = [(judged.batch_size, judged.mean_percent, judged.interval) for judged in report.held_out]
    yield ReportSection(
        title="Distinct experts in a decode step, on requests the fit has not seen",
        text="How many fewer experts a layer loads when the requests of a batch share a cluster instead of "
        "being mixed. This is what a version is judged by. Bars are 95 % intervals over the splits.",
        figure=report_figures.union_by_batch(rows, report.control_random_labels_percent),
        table=held_out_table(report),
    )


def _quality_sections(report: CalibrationReport) -> Iterator[ReportSection]:
    if report.rho_by_layer_count is not None:
        yield ReportSection(
            title="Layers kept",
            text="rho says how well distance between signatures ranks distance between decode uses. Layers "
            "join one by one, each time the one that raises rho most; the star marks where it was highest.",
            figure=report_figures.rho_by_layer_count(report.rho_by_layer_count, report.n_layers_kept),
        )
    if report.rho_by_transform:
        rows = [(one.transform.value, one.rho, None) for one in report.rho_by_transform]
        yield ReportSection(
            title="Transforms",
            text="rho of each transform, every layer kept. It describes and does not decide: "
            "transforms far apart here can save the same experts.",
            figure=report_figures.rho_by_transform(rows),
        )


def _cluster_sections(report: CalibrationReport) -> Iterator[ReportSection]:
    capacity = -(-report.n_requests // report.n_clusters)
    yield ReportSection(
        title="Cluster sizes",
        text="Requests in each cluster. A decode worker takes one, so none may exceed its share.",
        figure=report_figures.cluster_sizes(report.cluster_sizes, capacity),
    )
    shown = report.projection
    if shown.points.shape[1] >= 2:
        yield ReportSection(
            title="Signatures",
            text="Every dot is a request, at the first two principal components of its signature; "
            "numbers mark the centroids. For looking at only: nothing is decided by these two directions.",
            figure=report_figures.signature_map(
                shown.points, report.labels[shown.rows], shown.centroid_points, shown.explained_share
            ),
        )


def _at_16(report: CalibrationReport) -> str:
    judged = report.held_out_at(16)
    return "not judged" if judged is None else percent_with_interval(judged.mean_percent, judged.interval)


def _control(report: CalibrationReport) -> str:
    percent = report.control_random_labels_percent
    return "not judged" if percent is None else f"{percent:+.2f} %"


def _covered(judged: HeldOutUnion) -> str:
    warning = ", too few" if judged.covered_share < LEAST_COVERED_SHARE else ""
    return f"{100 * judged.covered_share:.0f} %{warning}"
