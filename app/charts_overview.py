"""Figures over time: latency with what happened, request rate, active experts."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import plotly.graph_objects as go

from app.charts import BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY, figure, line
from controlplane.domain.calibrations import CalibrationRun
from controlplane.domain.telemetry import MetricPoint
from controlplane.domain.versions import Activation, ActivationKind, RoutingSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEvent:
    """Something that happened to the fleet, to be read beside its latency."""

    at: datetime
    kind: str
    label: str
    detail: str


MARKS = {
    "promotion": ("triangle-up", GREEN),
    "rollback": ("triangle-down", RED),
    "tuning": ("diamond", ORANGE),
    "calibration": ("square", PINK),
}


def timeline_events(
    activations: Sequence[Activation],
    revisions: Sequence[RoutingSettings],
    runs: Sequence[CalibrationRun],
    since: datetime,
) -> tuple[TimelineEvent, ...]:
    """Collect what changed since a moment, newest first."""
    events = [
        TimelineEvent(
            at=each.at,
            kind="promotion" if each.kind is ActivationKind.PROMOTE else "rollback",
            label=f"v{each.version_number}",
            detail=f"{each.actor}: {each.reason}",
        )
        for each in activations
    ]
    events += [
        TimelineEvent(
            at=each.changed_at,
            kind="tuning",
            label=f"τ {each.tau:g}",
            detail=f"{each.changed_by}: {each.reason}",
        )
        for each in revisions
    ]
    events += [
        TimelineEvent(
            at=each.created_at,
            kind="calibration",
            label="refit" if each.is_refit else "fit",
            detail=f"{each.actor}: {each.reason}",
        )
        for each in runs
    ]
    return tuple(
        sorted((each for each in events if each.at >= since), key=lambda each: each.at, reverse=True)
    )


def latency_timeline(points: Sequence[MetricPoint], events: Sequence[TimelineEvent]) -> go.Figure:
    """Draw TPOT over time with promotions, rollbacks, changes of tau and calibrations on it."""
    p50 = [point.tpot_p50_ms for point in points]
    p99 = [point.tpot_p99_ms for point in points]
    drawn = figure(
        [
            line("TPOT P50", points, p50, colour=BLUE, unit="ms"),
            line("TPOT P99", points, p99, colour=SKY, dash="dot", unit="ms"),
        ],
        x_title="time (UTC)",
        y_title="time per output token (ms)",
        height=340,
    )
    known = [value for value in p99 + p50 if value is not None]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    reach = max(high - low, 0.1)
    for each in events:
        drawn.add_shape(
            type="line",
            x0=each.at,
            x1=each.at,
            y0=0,
            y1=0.84,
            yref="paper",
            opacity=0.7,
            line={"color": MARKS[each.kind][1], "width": 1, "dash": "dash"},
        )
    for kind, (symbol, colour) in MARKS.items():
        _add_marks(
            drawn, kind, symbol, colour, [each for each in events if each.kind == kind], high + 0.14 * reach
        )
    drawn.update_yaxes(range=[max(low - 0.1 * reach, 0), high + 0.34 * reach])
    return drawn


def _add_marks(
    drawn: go.Figure, kind: str, symbol: str, colour: str, events: Sequence[TimelineEvent], height: float
) -> None:
    if not events:
        return
    drawn.add_trace(
        go.Scatter(
            name=kind,
            x=[each.at for each in events],
            y=[height] * len(events),
            mode="markers+text",
            text=[each.label for each in events],
            textposition="top center",
            cliponaxis=False,
            marker={"symbol": symbol, "color": colour, "size": 12, "line": {"width": 1, "color": "white"}},
            customdata=[each.detail for each in events],
            hovertemplate=f"%{{text}}, %{{x|%d %b %H:%M:%S}} UTC<br>%{{customdata}}<extra>{kind}</extra>",
        )
    )


def request_rate(points: Sequence[MetricPoint]) -> go.Figure:
    """Draw requests a second, and those that failed."""
    rates = [point.n_requests / point.window_seconds for point in points]
    errors = [point.n_errors / point.window_seconds for point in points]
    drawn = figure(
        [
            line("requests", points, rates, colour=BLUE, unit="/s"),
            line("errors", points, errors, colour=RED, dash="dash", unit="/s", digits=3),
        ],
        x_title="time (UTC)",
        y_title="rate (1/s)",
        height=260,
    )
    drawn.update_yaxes(rangemode="tozero")
    return drawn


def active_experts(points: Sequence[MetricPoint]) -> go.Figure:
    """Draw distinct experts that a decode step loads: observed, predicted, and of a random mix."""
    return figure(
        [
            line("observed", points, [point.active_experts for point in points], colour=BLUE),
            line(
                "predicted", points, [p.predicted_active_experts for p in points], colour=ORANGE, dash="dash"
            ),
            line("random mix", points, [p.random_active_experts for p in points], colour=GREY, dash="dot"),
        ],
        x_title="time (UTC)",
        y_title="active experts a step",
        height=260,
    )
