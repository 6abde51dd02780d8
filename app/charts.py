"""What all figures share: colours that colour-blind readers tell apart, shapes, axes with units."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import plotly.graph_objects as go

from controlplane.domain.telemetry import MetricPoint

# Okabe and Ito's colours without black and yellow, which one of the two themes would swallow.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C8C8C")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star")
SYMBOLS_3D = ("circle", "square", "diamond", "cross", "x", "diamond-open", "square-open")
BLUE, ORANGE, GREEN, PINK, SKY, RED, GREY = COLOURS
SEQUENTIAL = "Cividis"
GRID = "rgba(128, 140, 152, 0.22)"
FONT_SIZE = 12
MOST_WINDOWS_APART = 1.5
BAND = "rgba(0, 114, 178, 0.16)"


def figure(
    traces: Sequence[object] = (), *, x_title: str, y_title: str, height: int = 280, has_legend: bool = True
) -> go.Figure:
    """Build a figure in the house's form; titles of axes carry their units."""
    drawn = go.Figure(data=list(traces))
    axis = {"gridcolor": GRID, "zeroline": False, "automargin": True}
    drawn.update_xaxes(title_text=x_title, **axis)
    drawn.update_yaxes(title_text=y_title, **axis)
    drawn.update_layout(
        height=height,
        margin={"l": 62, "r": 8, "t": 30 if has_legend else 12, "b": 8},
        font_size=FONT_SIZE,
        hovermode="closest",
        uirevision="kept",
        showlegend=has_legend,
        legend={"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom", "title_text": ""},
    )
    return drawn


def colour_of(index: int) -> str:
    """Colour of the n-th series."""
    return COLOURS[index % len(COLOURS)]


def symbol_of(index: int, *, is_3d: bool = False) -> str:
    """Return the shape of the n-th series: with its colour, 49 series are told apart."""
    symbols = SYMBOLS_3D if is_3d else SYMBOLS
    return symbols[(index + index // len(COLOURS)) % len(symbols)]


def line(
    name: str,
    points: Sequence[MetricPoint],
    values: Sequence[float | None],
    *,
    colour: str,
    dash: str = "solid",
    unit: str = "",
    digits: int = 1,
) -> go.Scatter:
    """Draw one value of each window over time; where windows are missing, the line is broken."""
    times: list[datetime] = []
    shown: list[float | None] = []
    for before, point, value in zip([None, *points], points, values, strict=False):
        if before is not None and _is_apart(before, point):
            times.append(before.window_start + timedelta(seconds=before.window_seconds))
            shown.append(None)
        times.append(point.window_start)
        shown.append(value)
    ends = [None, *shown, None]
    alone = [left is right is None for left, right in zip(ends, ends[2:], strict=False)]
    hover = f"%{{y:.{digits}f}} {unit}<br>%{{x|%d %b %H:%M:%S}} UTC<extra>{name}</extra>"
    return go.Scatter(
        name=name,
        x=times,
        y=shown,
        mode="lines+markers",
        connectgaps=False,
        hovertemplate=hover,
        line={"color": colour, "width": 2, "dash": dash},
        marker={"size": [4 if each else 0 for each in alone]},  # a window between two gaps has no line
    )


def _is_apart(before: MetricPoint, after: MetricPoint) -> bool:
    window_seconds = max(before.window_seconds, after.window_seconds)
    return (after.window_start - before.window_start).total_seconds() > MOST_WINDOWS_APART * window_seconds


def bars(
    name: str, x: Sequence[object], y: Sequence[float], *, colour: str, pattern: str = "", unit: str = ""
) -> go.Bar:
    """Draw one group of bars; the pattern tells it apart without its colour."""
    return go.Bar(
        name=name,
        x=list(x),
        y=list(y),
        hovertemplate=f"%{{x}}: %{{y:.3g}} {unit}<extra>{name}</extra>",
        marker={
            "color": colour,
            "pattern": {
                "shape": pattern,
                "fgcolor": "rgba(255,255,255,0.7)",
                "size": 5,
                "fillmode": "overlay",
            },
        },
    )


def heat_map(
    values: Sequence[Sequence[float]],
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    x_title: str,
    y_title: str,
    unit_title: str,
    middle: float | None = None,
    height: int = 320,
) -> go.Figure:
    """Draw a matrix; with `middle` in diverging colours about it."""
    trace = go.Heatmap(
        z=[list(row) for row in values],
        x=list(columns),
        y=list(rows),
        zmid=middle,
        colorscale=SEQUENTIAL if middle is None else "PuOr_r",
        xgap=1,
        ygap=1,
        colorbar={"title": {"text": unit_title, "side": "right"}, "thickness": 12, "outlinewidth": 0},
        hovertemplate=f"{y_title} %{{y}}, {x_title} %{{x}}: %{{z:.2f}}<extra></extra>",
    )
    drawn = figure([trace], x_title=x_title, y_title=y_title, height=height, has_legend=False)
    drawn.update_xaxes(showgrid=False, type="category", tickangle=0)
    drawn.update_yaxes(showgrid=False, type="category", autorange="reversed")
    return drawn
