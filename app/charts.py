"""What all figures share: colours that colour-blind readers tell apart, shapes, axes with units."""

from collections.abc import Sequence

import plotly.graph_objects as go

# Okabe and Ito's colours without black and yellow, which one of the two themes would swallow.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C8C8C")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star")
SYMBOLS_3D = ("circle", "square", "diamond", "cross", "x", "diamond-open", "square-open")
BLUE, ORANGE, GREEN, PINK, SKY, RED, GREY = COLOURS
SEQUENTIAL = "Cividis"
GRID = "rgba(128, 140, 152, 0.22)"
FONT_SIZE = 12
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
    x: Sequence[object],
    y: Sequence[float | None],
    *,
    colour: str,
    dash: str = "solid",
    unit: str = "",
    digits: int = 1,
) -> go.Scatter:
    """Draw one series over time; gaps stay gaps."""
    hover = f"%{{y:.{digits}f}} {unit}<br>%{{x|%d %b %H:%M:%S}} UTC<extra>{name}</extra>"
    return go.Scatter(
        name=name,
        x=list(x),
        y=list(y),
        mode="lines",
        connectgaps=False,
        hovertemplate=hover,
        line={"color": colour, "width": 2, "dash": dash},
    )


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
