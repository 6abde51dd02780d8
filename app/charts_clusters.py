"""Figures of signatures: PCA with centroids, occupancy, similarity, experts of a cluster."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from app.charts import BLUE, GREY, bars, colour_of, figure, heat_map, symbol_of
from app.formats import version_name
from controlplane.domain.calibrations import ClusterExperts, ProjectedPoint, Projection

COLOUR_BY = ("cluster", "worker", "version", "label")
DECIMALS = 3
TOP_EXPERTS = 32
CAMERA = {"eye": {"x": 1.35, "y": 1.35, "z": 0.75}, "center": {"x": 0, "y": 0, "z": -0.12}}


def group_of(point: ProjectedPoint, colour_by: str) -> str:
    """Name the group a point is coloured with."""
    if colour_by == "cluster":
        return f"cluster {point.cluster}"
    if colour_by == "worker":
        return point.worker_id or "no worker"
    if colour_by == "version":
        return f"routed by {version_name(point.version_number)}"
    return point.label or "no label"


def signature_map(
    projection: Projection, *, colour_by: str, is_3d: bool, picked: str | None = None
) -> go.Figure:
    """Draw the PCA of signatures; centroids as large outlined markers with their number."""
    n_axes = 3 if is_3d else 2
    groups: defaultdict[str, list[ProjectedPoint]] = defaultdict(list)
    for point in projection.points:
        groups[group_of(point, colour_by)].append(point)
    names = sorted(groups, key=lambda name: (len(name), name))
    traces = [_cloud(name, groups[name], index, n_axes) for index, name in enumerate(names) if groups[name]]
    traces.append(_centroids(projection.centroids, n_axes))
    chosen = [point for point in projection.points if point.request_id == picked]
    if chosen:
        traces.append(_picked(chosen[0], n_axes))
    titles = [_axis_title(projection, axis, is_3d=is_3d) for axis in range(3)]
    drawn = figure(traces, x_title=titles[0], y_title=titles[1], height=520)
    drawn.update_layout(
        legend={"itemsizing": "constant", "font": {"size": 11}}, dragmode="orbit" if is_3d else "pan"
    )
    if is_3d:
        axes = {f"{name}axis": {"title": {"text": title}} for name, title in zip("xyz", titles, strict=True)}
        drawn.update_layout(
            scene=axes | {"aspectmode": "cube", "camera": CAMERA}, margin={"l": 0, "r": 0, "t": 40, "b": 0}
        )
    return drawn


def _axis_title(projection: Projection, axis: int, *, is_3d: bool) -> str:
    if axis >= len(projection.explained_share):
        return f"component {axis + 1}"
    share = f"{100 * projection.explained_share[axis]:.0f} %"
    return f"{axis + 1} ({share})" if is_3d else f"component {axis + 1} ({share} of variance)"


def _cloud(name: str, points: Sequence[ProjectedPoint], index: int, n_axes: int) -> object:
    where = np.round(np.array([point.coordinates[:n_axes] for point in points]), DECIMALS)
    marker = {
        "size": 3 if n_axes == 3 else 6,
        "opacity": 0.65,
        "color": colour_of(index),
        "symbol": symbol_of(index, is_3d=n_axes == 3),
    }
    return _scatter(
        n_axes,
        where,
        name=name,
        mode="markers",
        marker=marker,
        customdata=[[point.request_id] for point in points],
        text=[f"{point.similarity:.2f}" for point in points],
        hovertemplate="%{customdata[0]}<br>similarity %{text}<extra>" + name + "</extra>",
    )


def _centroids(centroids: Sequence[Sequence[float]], n_axes: int) -> object:
    where = np.array([centroid[:n_axes] for centroid in centroids]).reshape(-1, n_axes)
    marker = {
        "size": 7 if n_axes == 3 else 17,
        "symbol": "diamond" if n_axes == 3 else "circle",
        "color": "#FFFFFF",
        "line": {"color": "#1B2733", "width": 2},
    }
    return _scatter(
        n_axes,
        where,
        name="centroids",
        mode="markers+text",
        marker=marker,
        hoverinfo="skip",
        text=[str(index) for index in range(len(centroids))],
        textfont={"size": 10, "color": "#1B2733" if n_axes == 2 else GREY},
        textposition="middle center" if n_axes == 2 else "top center",
    )


def _picked(point: ProjectedPoint, n_axes: int) -> object:
    where = np.array([point.coordinates[:n_axes]])
    marker = {
        "size": 9 if n_axes == 3 else 18,
        "symbol": "circle-open",
        "color": "#D55E00",
        "line": {"width": 3},
    }
    return _scatter(n_axes, where, name="picked", mode="markers", marker=marker, hoverinfo="skip")


def _scatter(n_axes: int, where: np.ndarray, **options: object) -> object:
    axes = dict(zip("xyz", where.T.tolist(), strict=False))
    return go.Scatter3d(**axes, **options) if n_axes == 3 else go.Scattergl(**axes, **options)


def align_to(reference: Projection, other: Projection) -> tuple[Projection, int]:
    """Turn another version's PCA so that requests that both show lie as near as may be.

    Orthogonal Procrustes over the shared requests: axes of two PCA are free in sign and order. With fewer
    shared requests than axes it is left as it is. Returns the number of requests it was aligned on.
    """
    places = {point.request_id: point.coordinates for point in reference.points}
    shared = [
        (places[point.request_id], point.coordinates) for point in other.points if point.request_id in places
    ]
    n_axes = len(other.explained_share)
    if len(shared) <= n_axes or len(reference.explained_share) != n_axes:
        return other, 0
    target, source = (np.array(side) for side in zip(*shared, strict=True))
    left, _, right = np.linalg.svd((source - source.mean(axis=0)).T @ (target - target.mean(axis=0)))
    turn = left @ right
    return _turned(other, turn), len(shared)


def _turned(projection: Projection, turn: np.ndarray) -> Projection:
    points = tuple(
        ProjectedPoint(
            request_id=point.request_id,
            at=point.at,
            cluster=point.cluster,
            worker_id=point.worker_id,
            label=point.label,
            version_number=point.version_number,
            similarity=point.similarity,
            coordinates=tuple((np.array(point.coordinates) @ turn).tolist()),
        )
        for point in projection.points
    )
    return Projection(
        version_id=projection.version_id,
        version_number=projection.version_number,
        points=points,
        explained_share=projection.explained_share,
        occupancy=projection.occupancy,
        is_live=projection.is_live,
        reference_occupancy=projection.reference_occupancy,
        centroids=tuple(tuple((np.array(each) @ turn).tolist()) for each in projection.centroids),
    )


def occupancy_bars(now: Sequence[int], reference: Sequence[int], now_name: str = "now") -> go.Figure:
    """Draw the share of requests in each cluster beside that of the calibration."""
    clusters = [str(index) for index in range(max(len(now), len(reference)))]
    drawn = figure(
        [
            bars(now_name, clusters, _percent(now), colour=BLUE, unit="%"),
            bars("at calibration", clusters, _percent(reference), colour=GREY, pattern="/", unit="%"),
        ],
        x_title="cluster",
        y_title="share of requests (%)",
        height=280,
    )
    drawn.update_xaxes(type="category")
    drawn.update_layout(barmode="group", bargap=0.25)
    return drawn


def _percent(counts: Sequence[int]) -> list[float]:
    total = sum(counts)
    return [100 * count / total if total else 0.0 for count in counts]


def similarity_histogram(points: Sequence[ProjectedPoint]) -> go.Figure:
    """Draw how near requests lie to their nearest centroid, with the 10 % quantile that drift looks at."""
    values = np.array([point.similarity for point in points])
    counts, edges = np.histogram(values, bins=40) if len(values) else (np.zeros(1), np.array([0.0, 1.0]))
    middles = ((edges[:-1] + edges[1:]) / 2).round(4).tolist()
    trace = go.Bar(
        name="requests",
        x=middles,
        y=counts.tolist(),
        marker_color=BLUE,
        hovertemplate="similarity %{x:.2f}: %{y} requests<extra></extra>",
    )
    drawn = figure(
        [trace],
        x_title="cosine similarity to nearest centroid (1)",
        y_title="requests (count)",
        height=280,
        has_legend=False,
    )
    if len(values):
        low = float(np.quantile(values, 0.1))
        drawn.add_vline(
            x=low,
            line={"color": "#D55E00", "dash": "dash"},
            annotation_text=f"10 % quantile {low:.2f}",
            annotation_position="top left",
        )
    drawn.update_layout(bargap=0.05, margin={"t": 26})
    return drawn


def expert_map(experts: ClusterExperts) -> go.Figure:
    """Draw the use of a cluster's most used experts, layer by layer: per layer, in order of use."""
    use = np.array(experts.use)
    order = np.argsort(-use, axis=1)[:, : min(TOP_EXPERTS, use.shape[1])]
    top = np.take_along_axis(use, order, axis=1)
    trace = go.Heatmap(
        z=(100 * top).round(2).tolist(),
        customdata=order.tolist(),
        colorscale="Cividis",
        x=[str(rank + 1) for rank in range(top.shape[1])],
        y=[str(layer) for layer in range(top.shape[0])],
        colorbar={"title": {"text": "tokens (%)", "side": "right"}, "thickness": 12, "outlinewidth": 0},
        hovertemplate="layer %{y}, expert %{customdata}: %{z:.1f} % of tokens<extra></extra>",
    )
    drawn = figure(
        [trace], x_title="expert, by rank of use in its layer", y_title="layer", height=420, has_legend=False
    )
    drawn.update_xaxes(type="category", showgrid=False, nticks=16, tickangle=0)
    drawn.update_yaxes(type="category", showgrid=False, autorange="reversed")
    return drawn


def raw_expert_map(experts: ClusterExperts) -> go.Figure:
    """Draw the use of every expert, layer by layer."""
    return heat_map(
        [[round(100 * share, 2) for share in row] for row in experts.use],
        rows=[str(layer) for layer in range(len(experts.use))],
        columns=[str(expert) for expert in range(len(experts.use[0]) if experts.use else 0)],
        x_title="expert",
        y_title="layer",
        unit_title="tokens (%)",
        height=420,
    )


def decision_bars(similarities: dict[str, float], band: Sequence[str], chosen: str) -> go.Figure:
    """Draw a decision: similarity by worker, the band, and where the request went."""
    names = sorted(similarities, key=lambda name: -similarities[name])
    colours = [BLUE if name == chosen else "#56B4E9" if name in band else GREY for name in names]
    texts = ["chosen" if name == chosen else "in band" if name in band else "" for name in names]
    trace = go.Bar(
        x=[similarities[name] for name in names],
        y=names,
        orientation="h",
        marker_color=colours,
        text=texts,
        textangle=0,  # short bars would turn it
        hovertemplate="%{y}: similarity %{x:.3f}<extra></extra>",
    )
    drawn = figure(
        [trace], x_title="cosine similarity (1)", y_title="", height=90 + 24 * len(names), has_legend=False
    )
    drawn.update_yaxes(autorange="reversed")
    return drawn
