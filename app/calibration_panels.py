"""Panels of a finished calibration: its figures, its signatures, what became of its version."""

import streamlit as st

from app.charts_calibration import cluster_sizes, held_out_by_batch, rho_by_layers, rho_by_transform
from app.charts_clusters import signature_map, similarity_histogram
from app.formats import interval, number, signed, words
from app.kept_data import fetch
from app.panels import guarded, panel, show_empty
from controlplane.client import ControlPlaneClient
from controlplane.domain.calibrations import CalibrationReport, CalibrationRun, RunState
from controlplane.domain.versions import Version

REPORT_SECONDS = 600
BARE = {"displayModeBar": False}
PREFILL_ONLY = "The trace has no decode counts, which this needs."


def show_report(client: ControlPlaneClient, run: CalibrationRun) -> None:
    """Draw what came of a run."""
    if run.state is RunState.FAILED:
        st.error(f"The run failed: {run.error}", icon=":material/error:")
        return
    if run.version_id is None:
        with panel("Report"):
            show_empty("The report comes when the run has succeeded.", ":material/hourglass_empty:")
        return
    with guarded():
        report = fetch(
            client,
            f"report/{run.id}",
            lambda: client.calibration_report(run.id),
            max_age_seconds=REPORT_SECONDS,
        ).value
        versions = fetch(client, "versions", client.versions, max_age_seconds=10).value
        _show_tiles(report, next((each for each in versions if each.id == run.version_id), None))
        _show_figures(report)
    _show_signatures(client, run.version_id)


def _show_tiles(report: CalibrationReport, version: Version | None) -> None:
    judged = dict(report.held_out_by_batch())
    held_out = judged.get(report.control.batch_size)
    n_layers = len(report.rho_by_layer_count or ())
    tiles = (
        (
            f"Held-out active experts, batch {report.control.batch_size}",
            signed(None if held_out is None else held_out.mean_percent),
            interval(None if held_out is None else held_out.interval),
        ),
        (
            "rho, prefill to decode",
            number(report.rho, 2),
            interval(report.rho_interval, 2, is_change=False),
        ),
        (
            "Layers kept",
            f"{report.n_layers_kept} of {n_layers}" if n_layers else str(report.n_layers_kept),
            words(report.transform),
        ),
        (
            "Became" if version is not None else "Requests",
            f"{report.n_requests:,} requests" if version is None else f"v{version.number}, {version.state}",
            f"{report.n_requests:,} requests, {report.n_left_out:,} left out",
        ),
    )
    for column, (label, value, note) in zip(st.columns(4), tiles, strict=True):
        column.metric(label, value, delta=note, delta_color="off", delta_arrow="off", border=True)
    if report.signature_note:
        st.caption(f":material/info: {report.signature_note}")


def _show_figures(report: CalibrationReport) -> None:
    left, right = st.columns(2)
    with left, panel("rho by transform", "Does a request's prefill tell its decode? It describes only."):
        if report.rho_by_transform:
            st.plotly_chart(rho_by_transform(report), key="report_transforms", config=BARE)
        else:
            show_empty(PREFILL_ONLY)
    with right, panel("rho by layers kept", "Layers are added best first; the star is what is kept."):
        if report.rho_by_layer_count:
            st.plotly_chart(rho_by_layers(report), key="report_layers", config=BARE)
        else:
            show_empty("No layers were selected." if report.rho_by_transform else PREFILL_ONLY)
    left, right = st.columns(2)
    held_out_help = "On requests the fit never saw, against mixed batches."
    with left, panel("Held-out active experts", held_out_help, is_tall=True):
        if report.held_out_by_batch():
            st.plotly_chart(held_out_by_batch(report), key="report_held_out", config=BARE)
        else:
            show_empty("Too few requests, or no decode counts: nothing could be judged.")
    with right, panel("Cluster sizes against capacity", "Balance: no worker is home to more than its share."):
        st.plotly_chart(cluster_sizes(report), key="report_sizes", config=BARE)
        st.caption(f"Silhouette {number(report.silhouette, 3)} (cosine; 1 is apart, 0 is mixed).")


def _show_signatures(client: ControlPlaneClient, version_id: str) -> None:
    left, right = st.columns([1.3, 1])
    with guarded():
        projection = fetch(
            client,
            f"projection/{version_id}/False",
            lambda: client.projection(version_id, is_live=False),
            max_age_seconds=REPORT_SECONDS,
        ).value
        with left, panel("Signatures it was fitted on", "PCA; centroids outlined. More on Clusters."):
            drawn = signature_map(projection, colour_by="cluster", is_3d=False)
            drawn.update_layout(height=420)
            st.plotly_chart(drawn, key="report_map", config=BARE)
        with right, panel("Similarity to nearest centroid", is_tall=True):
            drawn = similarity_histogram(projection.points)
            drawn.update_layout(height=420)
            st.plotly_chart(drawn, key="report_similarity", config=BARE)
