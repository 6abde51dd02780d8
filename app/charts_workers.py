"""Figures of workers: distinct experts by worker and layer, against a random mix; their clusters."""

from collections import Counter
from collections.abc import Sequence

import plotly.graph_objects as go

from app.charts import BLUE, GREY, bars, colour_of, figure, heat_map, line
from controlplane.domain.telemetry import MetricPoint, SampledDecision, WorkerUnion

PATTERNS = ("", "/", "\\", "x", "-", "|", "+", ".")


def union_map(unions: Sequence[WorkerUnion], *, is_relative: bool) -> go.Figure:
    """Draw active experts by worker and layer; relative to a random mix of the same batch if asked."""
    values = [
        [
            100 * (active / random - 1) if is_relative and random else active
            for active, random in zip(union.active_by_layer, union.random_by_layer, strict=True)
        ]
        for union in unions
    ]
    n_layers = len(unions[0].active_by_layer) if unions else 0
    return heat_map(
        values,
        rows=[union.worker_id for union in unions],
        columns=[str(layer) for layer in range(n_layers)],
        x_title="layer",
        y_title="worker",
        unit_title="against random mix (%)" if is_relative else "active experts a step",
        middle=0.0 if is_relative else None,
        height=140 + 26 * len(unions),
    )


def union_bars(unions: Sequence[WorkerUnion]) -> go.Figure:
    """Draw mean active experts a step by worker, beside those of a random mix."""
    workers = [union.worker_id for union in unions]
    drawn = figure(
        [
            bars("observed", workers, [_mean(union.active_by_layer) for union in unions], colour=BLUE),
            bars("random mix", workers, [_mean(u.random_by_layer) for u in unions], colour=GREY, pattern="/"),
        ],
        x_title="worker",
        y_title="active experts a step",
        height=300,
    )
    drawn.update_layout(barmode="group", bargap=0.25, xaxis_tickfont_size=10)
    return drawn


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def worker_lines(points: Sequence[MetricPoint], metric: str, y_title: str) -> go.Figure:
    """Draw one metric over time, one line a worker; colour and dash tell them apart."""
    dashes = ("solid", "dash", "dot")
    workers = sorted({point.worker_id for point in points if point.worker_id is not None})
    traces = []
    for index, worker in enumerate(workers):
        own = [point for point in points if point.worker_id == worker]
        values = [getattr(point, metric) for point in own]
        dash = dashes[index // 7 % len(dashes)]
        traces.append(line(worker, own, values, colour=colour_of(index), dash=dash))
    drawn = figure(traces, x_title="time (UTC)", y_title=y_title, height=300)
    drawn.update_traces(line_width=1.5)
    return drawn


def cluster_mix(decisions: Sequence[SampledDecision]) -> go.Figure:
    """Draw which clusters' requests each worker got, of the newest sampled decisions."""
    counts = Counter((each.decode_worker, each.cluster) for each in decisions if each.cluster is not None)
    workers = sorted({worker for worker, _ in counts})
    totals = {worker: sum(n for (name, _), n in counts.items() if name == worker) for worker in workers}
    traces = [
        bars(
            f"cluster {cluster}",
            workers,
            [100 * counts[worker, cluster] / totals[worker] for worker in workers],
            colour=colour_of(cluster),
            pattern=PATTERNS[cluster // 7 % len(PATTERNS)],
            unit="%",
        )
        for cluster in sorted({each.cluster for each in decisions if each.cluster is not None})
    ]
    drawn = figure(traces, x_title="worker", y_title="share of its requests (%)", height=300)
    drawn.update_layout(barmode="stack", bargap=0.3, legend_traceorder="normal", xaxis_tickfont_size=10)
    return drawn
