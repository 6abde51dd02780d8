"""Numbers to figures: units on every axis, colours that colour-blind readers can tell apart."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from eldr_runtime.array_types import Floats, Ints

# The eight colours of Okabe and Ito, which stay distinct under every common colour blindness.
BLUE, ORANGE, GREEN, VERMILION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PALETTE = (BLUE, ORANGE, GREEN, VERMILION, "#CC79A7", "#56B4E9", "#8C7A00", "#333333")
SYMBOLS = ("circle", "diamond", "square", "triangle-up")  # a new symbol each time the colours run out
INK, RULE = "#1d2430", "#dfe3e8"
HEIGHT_PX = 380
ROW_HEIGHT_PX = 24

Interval = tuple[float, float]


def rho_by_layer_count(rho: Sequence[float] | Floats, n_kept: int) -> go.Figure:
    """Draw rho against the number of layers kept, a star on the number chosen."""
    n_layers = np.arange(1, len(rho) + 1)
    figure = _figure("layers kept, in the order they were chosen", "rho (rank correlation)")
    figure.add_scatter(x=n_layers, y=np.asarray(rho), mode="lines+markers", line_color=BLUE, name="rho")
    figure.add_scatter(
        x=[n_kept],
        y=[float(rho[n_kept - 1])],
        mode="markers+text",
        marker={"symbol": "star", "size": 17, "color": VERMILION},
        text=[f"{n_kept} kept"],
        textposition="bottom center",
        cliponaxis=False,
        name="chosen",
    )
    return figure.update_layout(showlegend=False)


def rho_by_transform(rows: Sequence[tuple[str, float, Interval | None]]) -> go.Figure:
    """Draw rho with its interval, one row a transform."""
    return _interval_rows(rows, "rho (rank correlation)", BLUE)


def cluster_sizes(sizes: Sequence[int], capacity: int) -> go.Figure:
    """Draw the requests in each cluster against the capacity of a balanced one."""
    figure = _figure("cluster", "calibration requests")
    figure.add_bar(x=[str(cluster) for cluster in range(len(sizes))], y=list(sizes), marker_color=BLUE)
    figure.add_hline(
        y=capacity,
        line={"dash": "dash", "color": VERMILION},
        annotation={"text": f"capacity {capacity}", "font": {"color": VERMILION}},
    )
    return figure.update_layout(bargap=0.35).update_xaxes(type="category")


def signature_map(
    points: Floats, labels: Ints, centroid_points: Floats, explained_share: Sequence[float] | Floats
) -> go.Figure:
    """Draw signatures on their first two principal components, coloured by cluster.

    Parameters
    ----------
    points : float64 (n_requests, at least 2)
    labels : int64 (n_requests,)
    centroid_points : float64 (n_centroids, at least 2)
    explained_share : share of the variance on each component, at least 2 of them
    """
    axes = [f"component {n} ({100 * explained_share[n - 1]:.0f} % of variance)" for n in (1, 2)]
    figure = _figure(*axes)
    for cluster in range(len(centroid_points)):
        of_cluster = points[labels == cluster]
        style = {"color": PALETTE[cluster % len(PALETTE)], "symbol": _symbol(cluster)}
        figure.add_scatter(
            x=of_cluster[:, 0],
            y=of_cluster[:, 1],
            mode="markers",
            marker={**style, "size": 6, "opacity": 0.55},
            name=f"cluster {cluster}",
        )
    figure.add_scatter(
        x=centroid_points[:, 0],
        y=centroid_points[:, 1],
        mode="markers+text",
        marker={"symbol": "x", "size": 11, "color": INK, "line": {"width": 1, "color": "white"}},
        text=[str(cluster) for cluster in range(len(centroid_points))],
        textposition="top center",
        textfont={"size": 14},
        name="centroid",
    )
    return figure.update_layout(height=520, legend={"itemsizing": "constant"})


def union_by_batch(rows: Sequence[tuple[int, float, Interval]], control_percent: float | None) -> go.Figure:
    """Draw the held-out change of the expert union by batch size, with intervals and the control at 16."""
    figure = _figure("batch size (requests decoded together)", "change of distinct experts (%)")
    sizes = [str(batch_size) for batch_size, _, _ in rows]
    means = [mean for _, mean, _ in rows]
    figure.add_scatter(
        x=sizes,
        y=means,
        error_y=_error_bars(means, [interval for _, _, interval in rows]),
        mode="lines+markers",
        line_color=BLUE,
        marker_size=9,
        name="by nearest centroid",
    )
    if control_percent is not None and "16" in sizes:
        figure.add_scatter(
            x=["16"],
            y=[control_percent],
            mode="markers",
            marker={"symbol": "diamond", "size": 11, "color": ORANGE},
            name="control: random labels",
        )
    figure.add_hline(y=0, line={"color": INK, "width": 1})
    return figure.update_xaxes(type="category")


def gain_by_category(rows: Sequence[tuple[str, float, Interval | None]], axis: str) -> go.Figure:
    """Draw one bar a category, best first; bars to the left of zero load fewer experts."""
    ordered = sorted(rows, key=lambda row: row[1], reverse=True)
    values = [value for _, value, _ in ordered]
    colours = [BLUE if value < 0 else ORANGE for value in values]
    figure = _figure(axis, "")
    intervals = [interval for _, _, interval in ordered if interval is not None]
    error = _error_bars(values, intervals) if intervals and len(intervals) == len(ordered) else None
    names = [name for name, _, _ in ordered]
    figure.add_bar(x=values, y=names, orientation="h", marker_color=colours, error_x=error)
    figure.update_layout(height=max(HEIGHT_PX, 110 + ROW_HEIGHT_PX * len(ordered)))
    figure.update_yaxes(type="category", dtick=1)
    return figure.add_vline(x=0, line={"color": INK, "width": 1})


def expert_use_map(relative_use: Floats) -> go.Figure:
    """Draw how often each expert is used against an even share, on a colour scale of factors of two.

    Parameters
    ----------
    relative_use : float64 (n_layers, n_experts), 1 for an even share, sorted within each layer
    """
    figure = _figure("layer", "expert, by rank of use")
    ticks = np.arange(-3, 4)
    figure.add_heatmap(
        z=np.log2(np.maximum(relative_use, 2.0**-3)).T,
        zmin=-3,
        zmax=3,
        colorscale="Cividis",
        colorbar={
            "title": {"text": "use, times<br>an even share"},
            "tickvals": ticks,
            "ticktext": ["1/8 or less", "1/4", "1/2", "1", "2", "4", "8 or more"],
        },
        customdata=relative_use.T,
        hovertemplate="layer %{x}, rank %{y}: %{customdata:.2f} times an even share<extra></extra>",
    )
    return figure


def change_by_policy(rows: Sequence[tuple[str, float, Interval | None]], axis: str) -> go.Figure:
    """Draw a change with its interval, one row a policy, and the line of no change."""
    figure = _interval_rows(rows, axis, GREEN)
    return figure.add_vline(x=0, line={"color": INK, "width": 1})


def _interval_rows(rows: Sequence[tuple[str, float, Interval | None]], axis: str, colour: str) -> go.Figure:
    figure = _figure(axis, "")
    values = [value for _, value, _ in rows]
    bounds = [interval or (value, value) for _, value, interval in rows]
    figure.add_scatter(
        x=values,
        y=[name for name, _, _ in rows],
        error_x=_error_bars(values, bounds),
        mode="markers",
        marker={"size": 11, "color": colour},
    )
    figure.update_yaxes(type="category", range=[len(rows) - 0.5, -0.5])
    return figure.update_layout(height=max(260, 110 + 40 * len(rows)))


def _error_bars(values: Sequence[float], intervals: Sequence[Interval]) -> dict[str, object]:
    above = [high - value for value, (_, high) in zip(values, intervals, strict=True)]
    below = [value - low for value, (low, _) in zip(values, intervals, strict=True)]
    return {
        "type": "data",
        "symmetric": False,
        "array": above,
        "arrayminus": below,
        "thickness": 2,
        "width": 6,
        "color": INK,
    }


def _figure(x_title: str, y_title: str) -> go.Figure:
    figure = go.Figure()
    figure.update_layout(
        template="plotly_white",
        height=HEIGHT_PX,
        margin={"l": 70, "r": 30, "t": 24, "b": 60},
        font={"family": "DejaVu Sans, system-ui, sans-serif", "size": 13, "color": INK},
        colorway=PALETTE,
    )
    figure.update_xaxes(title_text=x_title, gridcolor=RULE, zeroline=False, automargin=True)
    figure.update_yaxes(title_text=y_title, gridcolor=RULE, zeroline=False, automargin=True)
    return figure


def _symbol(cluster: int) -> str:
    return SYMBOLS[(cluster // len(PALETTE)) % len(SYMBOLS)]
