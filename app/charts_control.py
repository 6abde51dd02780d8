"""Figures beside the levers: versions' lineage, what-if over tau, effects of experiments, drift."""

from collections.abc import Sequence

import plotly.graph_objects as go

from app.charts import BLUE, GREEN, GREY, ORANGE, RED, figure
from app.formats import words
from controlplane.domain.telemetry import DriftCheck, Effect, ExperimentWindow
from controlplane.domain.versions import TauPoint, Version, VersionState

STATE_MARKS = {
    VersionState.ACTIVE: ("star", GREEN),
    VersionState.CANDIDATE: ("circle", BLUE),
    VersionState.RETIRED: ("square", GREY),
    VersionState.REJECTED: ("x", RED),
}
METRIC_NAMES = {
    "tpot_p50_ms": "TPOT P50",
    "tpot_p99_ms": "TPOT P99",
    "ttft_p50_ms": "TTFT P50",
    "active_experts": "active experts",
}
DRIFT_TITLES = {
    "fit_degradation": "10 % quantile of similarity (1)",
    "mix_shift": "population stability index (1)",
    "union_surprise": "observed over predicted experts (1)",
}


def lineage(versions: Sequence[Version]) -> go.Figure:
    """Draw versions over time, a line to each from the one it was fitted from; higher saves more."""
    by_hash = {version.content_hash: version for version in versions}
    heights = {version.id: -(version.held_out_percent or 0.0) for version in versions}
    drawn = figure(x_title="version (number)", y_title="held-out union reduction (%)", height=280)
    for child in versions:
        parent = by_hash.get(child.parent_hash or "")
        if parent is not None:
            drawn.add_trace(
                go.Scatter(
                    x=[parent.number, child.number],
                    y=[heights[parent.id], heights[child.id]],
                    mode="lines",
                    line={"color": GREY, "width": 1},
                    hoverinfo="skip",
                    showlegend=False,
                )
            )
    for state, (symbol, colour) in STATE_MARKS.items():
        own = [version for version in versions if version.state is state]
        drawn.add_trace(
            go.Scatter(
                name=state.value,
                x=[v.number for v in own],
                y=[heights[v.id] for v in own],
                mode="markers+text",
                text=[f"v{v.number}" for v in own],
                textposition="top center",
                marker={"symbol": symbol, "color": colour, "size": 13},
                cliponaxis=False,
                hovertemplate="%{text}: %{y:.1f} %<extra></extra>",
            )
        )
    drawn.update_xaxes(dtick=1)
    if heights:
        low, high = min(heights.values()), max(heights.values())
        room = 0.2 * max(high - low, 1.0)  # the names stand above the marks
        drawn.update_yaxes(range=[low - room, high + room])
    return drawn


def what_if(
    curve: Sequence[TauPoint], metric: str, y_title: str, *, now: float, wanted: float, scale: float = 1.0
) -> go.Figure:
    """Draw one predicted quantity over tau, with tau as it is and as it is asked for."""
    taus = [point.tau for point in curve]
    values = [getattr(point, metric) for point in curve]
    shown = [None if value is None else scale * value for value in values]
    trace = go.Scatter(
        x=taus,
        y=shown,
        mode="lines+markers",
        line={"color": BLUE, "width": 2},
        showlegend=False,
        hovertemplate="tau %{x:.3f}: %{y:.2f}<extra></extra>",
    )
    drawn = figure([trace], x_title="tau (1)", y_title=y_title, height=240)
    for name, tau, symbol, colour in (
        ("now", now, "circle-open", GREY),
        ("proposed", wanted, "diamond", ORANGE),
    ):
        if tau in taus:
            drawn.add_trace(
                go.Scatter(
                    name=name,
                    x=[tau],
                    y=[shown[taus.index(tau)]],
                    mode="markers",
                    marker={
                        "symbol": symbol,
                        "size": 13,
                        "color": colour,
                        "line": {"width": 3, "color": colour},
                    },
                    hovertemplate=f"{name}: tau %{{x:.3f}}, %{{y:.2f}}<extra></extra>",
                )
            )
    return drawn


def effect_forest(effects: Sequence[Effect]) -> go.Figure:
    """Draw each effect with its 95 % interval; left of zero is less with the treatment."""
    drawn = figure(
        x_title="change, treatment against control (%)",
        y_title="",
        height=100 + 42 * len(effects),
        has_legend=False,
    )
    for effect in effects:
        if effect.mean_percent is None:
            continue
        colour = {"lower": GREEN, "higher": RED}.get(effect.verdict, GREY)
        ends = effect.interval_percent
        error = None
        if ends is not None:
            error = {
                "type": "data",
                "symmetric": False,
                "array": [ends[1] - effect.mean_percent],
                "arrayminus": [effect.mean_percent - ends[0]],
                "thickness": 2.5,
                "width": 7,
            }
        drawn.add_trace(
            go.Scatter(
                x=[effect.mean_percent],
                y=[METRIC_NAMES.get(effect.metric, words(effect.metric))],
                error_x=error,
                mode="markers",
                hovertemplate="%{y}: %{x:.1f} %<extra></extra>",
                marker={"size": 11, "color": colour, "symbol": "diamond" if ends else "diamond-open"},
            )
        )
    drawn.add_vline(x=0, line={"color": GREY, "width": 1.5})
    drawn.update_yaxes(autorange="reversed", type="category")
    return drawn


def experiment_windows(windows: Sequence[ExperimentWindow]) -> go.Figure:
    """Draw the median TPOT of each window, by arm, in the order they ran."""
    traces = [
        go.Scatter(
            name=arm,
            x=[w.start for w in windows if w.arm == arm],
            mode="markers",
            y=[w.tpot_p50_ms for w in windows if w.arm == arm],
            marker={"symbol": symbol, "color": colour, "size": 11},
            hovertemplate=f"%{{y:.1f}} ms<br>%{{x|%H:%M:%S}} UTC<extra>{arm}</extra>",
        )
        for arm, symbol, colour in (("treatment", "circle", BLUE), ("control", "square-open", ORANGE))
    ]
    return figure(traces, x_title="start of window (UTC)", y_title="TPOT P50 (ms)", height=280)


def drift_statistic(checks: Sequence[DriftCheck], name: str) -> go.Figure:
    """Draw one drift statistic with its threshold; verdicts by shape, no data as gaps."""
    rows = [
        (check.at, measure)
        for check in sorted(checks, key=lambda check: check.at)
        for measure in check.measures
        if measure.name == name
    ]
    times = [at for at, _ in rows]
    drifted = [measure.verdict == "drift" for _, measure in rows]
    value = go.Scatter(
        name="value",
        x=times,
        y=[measure.value for _, measure in rows],
        mode="lines+markers",
        line={"color": BLUE, "width": 1.5},
        customdata=[measure.n for _, measure in rows],
        marker={
            "symbol": ["x" if each else "circle" for each in drifted],
            "color": [RED if each else BLUE for each in drifted],
            "size": [10 if each else 6 for each in drifted],
        },
        hovertemplate="%{y:.3f}, n = %{customdata}<br>%{x|%d %b %H:%M} UTC<extra></extra>",
    )
    bound = go.Scatter(
        name="threshold",
        x=times,
        y=[measure.threshold for _, measure in rows],
        mode="lines",
        line={"color": RED, "width": 1.5, "dash": "dash"},
        hovertemplate="threshold %{y:.3f}<extra></extra>",
    )
    return figure(
        [value, bound], x_title="time (UTC)", y_title=DRIFT_TITLES.get(name, words(name)), height=240
    )
