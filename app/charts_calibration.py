"""Figures of a calibration's report: rho by transform and by layers kept, clusters, held-out union."""

import plotly.graph_objects as go

from app.charts import BLUE, GREEN, GREY, ORANGE, bars, figure
from app.formats import signed, words
from controlplane.domain.calibrations import CalibrationReport

HEIGHT = 260


def rho_by_transform(report: CalibrationReport) -> go.Figure:
    """Draw rho of each transform, best first; the one the version uses stands out."""
    ranked = sorted(report.rho_by_transform.items(), key=lambda each: -each[1])
    names = [words(name) for name, _ in ranked]
    trace = go.Bar(
        x=[value for _, value in ranked],
        y=names,
        orientation="h",
        marker_color=[BLUE if name == report.transform else GREY for name, _ in ranked],
        text=[f"{value:.3f}{' · used' if name == report.transform else ''}" for name, value in ranked],
        textposition="auto",
        hovertemplate="%{y}: rho %{x:.3f}<extra></extra>",
    )
    drawn = figure(
        [trace], x_title="rho, prefill to decode, all layers (1)", y_title="", height=HEIGHT, has_legend=False
    )
    drawn.update_yaxes(autorange="reversed", type="category")
    return drawn


def rho_by_layers(report: CalibrationReport) -> go.Figure:
    """Draw rho over the number of layers kept, with a star at the number the version keeps."""
    values = report.rho_by_layer_count or ()
    curve = go.Scatter(
        name="rho",
        x=list(range(1, len(values) + 1)),
        y=list(values),
        mode="lines+markers",
        line={"color": BLUE, "width": 2},
        marker={"size": 4},
        hovertemplate="%{x} layers: rho %{y:.3f}<extra></extra>",
    )
    drawn = figure([curve], x_title="layers kept (count)", y_title="rho (1)", height=HEIGHT)
    if 1 <= report.n_layers_kept <= len(values):
        drawn.add_trace(
            go.Scatter(
                name=f"kept: {report.n_layers_kept}",
                x=[report.n_layers_kept],
                y=[values[report.n_layers_kept - 1]],
                mode="markers",
                marker={"symbol": "star", "size": 16, "color": ORANGE},
                hovertemplate="kept: %{x} layers, rho %{y:.3f}<extra></extra>",
            )
        )
    return drawn


def capacity(report: CalibrationReport) -> int:
    """Return the most requests a cluster may hold: an even share, rounded up."""
    return -(-sum(report.cluster_sizes) // max(report.n_clusters, 1))


def cluster_sizes(report: CalibrationReport) -> go.Figure:
    """Draw the requests of each cluster as fitted, with the capacity that balance allows."""
    clusters = [str(index) for index in range(len(report.cluster_sizes))]
    drawn = figure(
        [bars("as fitted", clusters, report.cluster_sizes, colour=BLUE, unit="requests")],
        x_title="cluster",
        y_title="requests (count)",
        height=HEIGHT,
        has_legend=False,
    )
    drawn.update_xaxes(type="category")
    drawn.add_hline(
        y=capacity(report),
        line={"color": ORANGE, "dash": "dash", "width": 2},
        annotation_text=f"capacity {capacity(report):,}",
        annotation_position="top right",
    )
    drawn.update_layout(margin={"t": 26})
    return drawn


def held_out_by_batch(report: CalibrationReport) -> go.Figure:
    """Draw the held-out change of active experts by batch size, 95 % intervals, and random groups."""
    judged = report.held_out_by_batch()
    trace = go.Scatter(
        name="by cluster, 95 % interval",
        x=[str(size) for size, _ in judged],
        y=[change.mean_percent for _, change in judged],
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [change.interval[1] - change.mean_percent for _, change in judged],
            "arrayminus": [change.mean_percent - change.interval[0] for _, change in judged],
            "thickness": 2.5,
            "width": 7,
        },
        mode="markers+text",
        text=[f"  {signed(change.mean_percent)}" for _, change in judged],  # clear of the bar
        textposition="middle right",
        cliponaxis=False,
        marker={"symbol": "diamond", "size": 8, "color": GREEN},
        hovertemplate="batch %{x}: %{y:.1f} %<extra></extra>",
    )
    drawn = figure([trace], x_title="batch (requests)", y_title="active experts, change (%)", height=HEIGHT)
    random_percent = report.control.random_labels_percent
    if random_percent is not None:
        drawn.add_trace(
            go.Scatter(
                name="random groups",
                x=[str(report.control.batch_size)],
                y=[random_percent],
                mode="markers",
                marker={"symbol": "square-open", "size": 11, "color": GREY, "line": {"width": 2}},
                hovertemplate="random groups, batch %{x}: %{y:.1f} %<extra></extra>",
            )
        )
    drawn.update_xaxes(type="category", range=[-0.4, len(judged) - 0.4])  # room for the last text
    drawn.add_hline(y=0, line={"color": GREY, "width": 1.5})
    return drawn
