"""Overview: how the fleet does now, what changed, and whether routing by experts helps."""

from collections.abc import Sequence
from datetime import UTC, datetime

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app.charts_overview import TimelineEvent, active_experts, latency_timeline, request_rate, timeline_events
from app.formats import NOTHING, age, interval, number, signed, version_name, words
from app.kept_data import fetch
from app.panels import guarded, panel, show_empty, show_freshness, show_table
from app.status_strip import acknowledged
from app.time_range import current_view
from controlplane.client import ControlPlaneClient
from controlplane.domain.alerts import Alert
from controlplane.domain.telemetry import Effect, Experiment, MetricPoint

LATEST_POINTS = 3
NO_TRAFFIC = "No requests in this range. Point a load at a router, or widen the time range."


def render(client: ControlPlaneClient) -> None:
    """Draw the page: one live region."""
    st.fragment(_show, run_every=current_view().refresh_seconds)(client)


def _show(client: ControlPlaneClient) -> None:
    with guarded():
        _show_tiles(client)
    left, right = st.columns([2.6, 1])
    with left, panel("TPOT and what happened", "Marks: promotions, rollbacks, tunings, calibrations."):
        _show_timeline(client)
    with right, panel("Open alerts", is_tall=True):
        _show_alerts(client)
    left, right = st.columns(2)
    with left, panel("Request rate"):
        _show_metrics(client, rate=True)
    with right, panel("Active experts a step", "Fewer distinct experts: fewer weights to load each step."):
        _show_metrics(client, rate=False)
    with panel("What happened"):
        _show_events(client)


def _points(client: ControlPlaneClient) -> tuple[MetricPoint, ...]:
    view = current_view()
    return fetch(
        client,
        f"metrics/fleet/{view.range_name}",
        lambda: client.metrics("fleet", view.since()),
        max_age_seconds=2,
    ).value


def _show_tiles(client: ControlPlaneClient) -> None:
    status = fetch(client, "status", client.status, max_age_seconds=2).value
    points = _points(client)
    experiments = fetch(client, "experiments", client.experiments, max_age_seconds=2).value
    effect, experiment = latest_effect(experiments, "tpot_p50_ms")
    generation, is_current = acknowledged(status)
    top = st.columns([1, 1.15, 1, 1])
    _tile(
        top[0],
        "TPOT P50 now",
        number(latest(points, "tpot_p50_ms"), 1, "ms"),
        f"P99 {number(latest(points, 'tpot_p99_ms'), 1, 'ms')}",
    )
    _tile(
        top[1],
        "TPOT P50 against control",
        signed(None if effect is None else effect.mean_percent),
        control_note(effect, experiment),
    )
    seen, mixed = latest(points, "active_experts"), latest(points, "random_active_experts")
    saved = None if seen is None or not mixed else 100 * (seen / mixed - 1)
    _tile(top[2], "Active experts a step", number(seen, 1), f"{signed(saved)} against a random mix")
    _tile(
        top[3],
        "Open alerts",
        str(status.n_open_alerts),
        f"{status.n_ready_decode} decode, {status.n_ready_prefill} prefill ready, {status.n_lost} lost",
    )
    low = st.columns([1, 1.15, 1, 1])
    _tile(
        low[0],
        "Request rate",
        number(rate_now(points), 1, "/s"),
        f"TTFT P50 {number(latest(points, 'ttft_p50_ms'), 0, 'ms')}",
    )
    n_current = generation.partition(" routers")[0]
    _tile(
        low[1],
        "Routers up to date",
        n_current,
        f"on generation {status.generation}"
        + ("" if is_current or not status.routers else ", the others lag"),
    )
    _tile(
        low[2], "Active version", version_name(status.active_version_number), f"policy {words(status.policy)}"
    )
    _tile(low[3], "tau", f"{status.tau:g}", "similarity given up for load")


def _tile(column: DeltaGenerator, label: str, value: str, note: str) -> None:
    column.metric(label, value, delta=note, delta_color="off", delta_arrow="off", border=True)


def latest(points: Sequence[MetricPoint], metric: str) -> float | None:
    """Return the mean of the newest points that have a value, weighted by requests."""
    known = [point for point in points if getattr(point, metric) is not None][-LATEST_POINTS:]
    weight = sum(point.n_requests for point in known)
    if not weight:
        return None
    return float(sum(getattr(point, metric) * point.n_requests for point in known)) / weight


def rate_now(points: Sequence[MetricPoint]) -> float | None:
    """Return requests a second over the newest whole points."""
    newest = points[-LATEST_POINTS - 1 : -1] or points
    seconds = sum(point.window_seconds for point in newest)
    return sum(point.n_requests for point in newest) / seconds if seconds else None


def latest_effect(experiments: Sequence[Experiment], metric: str) -> tuple[Effect | None, Experiment | None]:
    """Return the newest experiment that can tell, else the newest at all, with its effect on a metric."""
    found = [
        (effect, experiment)
        for experiment in experiments
        for effect in experiment.effects
        if effect.metric == metric
    ]
    conclusive = [each for each in found if each[0].interval_percent is not None]
    if not found:
        return None, None
    return (conclusive or found)[0]


def control_note(effect: Effect | None, experiment: Experiment | None) -> str:
    """Say what the change was measured against, and how sure it is."""
    if effect is None or experiment is None:
        return "no experiment yet"
    if effect.interval_percent is None:
        return f"inconclusive: {effect.n_pairs} of {experiment.n_pairs} pairs"
    return f"{interval(effect.interval_percent)} · {effect.n_pairs} pairs"


def _show_timeline(client: ControlPlaneClient) -> None:
    view = current_view()
    points = fetch(
        client,
        f"metrics/fleet/{view.range_name}",
        lambda: client.metrics("fleet", view.since()),
        max_age_seconds=2,
    )
    show_freshness(points)
    if not points.value:
        show_empty(NO_TRAFFIC)
        return
    st.plotly_chart(
        latency_timeline(points.value, _events(client)), key="timeline", config={"displayModeBar": False}
    )


def _events(client: ControlPlaneClient) -> tuple[TimelineEvent, ...]:
    view = current_view()
    return timeline_events(
        fetch(client, "activations", client.activations, max_age_seconds=2).value,
        fetch(client, "revisions", client.settings_revisions, max_age_seconds=2).value,
        fetch(client, "runs", client.calibration_runs, max_age_seconds=2).value,
        view.since(),
    )


def _show_metrics(client: ControlPlaneClient, *, rate: bool) -> None:
    points = _points(client)
    if not points:
        show_empty(NO_TRAFFIC)
        return
    drawn, key = (request_rate(points), "rate") if rate else (active_experts(points), "experts")
    st.plotly_chart(drawn, key=key, config={"displayModeBar": False})


def _show_alerts(client: ControlPlaneClient) -> None:
    alerts = fetch(client, "alerts", client.alerts, max_age_seconds=2)
    show_freshness(alerts)
    opened = [alert for alert in alerts.value if alert.resolved_at is None]
    if not opened:
        show_empty("Nothing is firing.", ":material/check_circle:")
    for alert in opened[:6]:
        _show_alert(alert)
    if len(opened) > 6:
        st.caption(f"and {len(opened) - 6} more on Drift & alerts")


SEVERITY = {
    "critical": ("red", ":material/error:"),
    "warning": ("orange", ":material/warning:"),
    "info": ("blue", ":material/info:"),
}


def _show_alert(alert: Alert) -> None:
    colour, icon = SEVERITY.get(alert.severity, ("gray", ":material/info:"))
    st.markdown(
        f":{colour}[{icon}] **{words(alert.rule)}** · {alert.subject}  \n{alert.summary}  \n"
        f":small[{alert.severity}, {alert.state.value} for {age(alert.started_at).removesuffix(' ago')}"
        f"{'' if alert.acknowledged_by is None else f', {alert.acknowledged_by} looks after it'}]"
    )


def _show_events(client: ControlPlaneClient) -> None:
    events = _events(client)
    if not events:
        show_empty("Nothing was promoted, rolled back, tuned or calibrated in this range.")
        return
    now = datetime.now(UTC)
    show_table(
        "events",
        {
            "at (UTC)": [each.at for each in events],
            "age": [age(each.at, now) for each in events],
            "what": [each.kind for each in events],
            "to": [each.label or NOTHING for each in events],
            "who and why": [each.detail for each in events],
        },
        height=240,
    )
