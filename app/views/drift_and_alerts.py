"""Drift and alerts: what fires, the statistics behind it, and the way to a refit."""

from functools import partial
from pathlib import Path
from typing import Literal

import streamlit as st

from app.charts_clusters import occupancy_bars
from app.charts_control import drift_statistic
from app.confirm import Change, Consent, Difference, ask
from app.formats import NOTHING, age, duration, moment, number, words
from app.kept_data import fetch
from app.panels import guarded, panel, show_empty, show_freshness, show_table
from app.redraw import redraw_when_changed
from app.time_range import current_view
from controlplane.client import ControlPlaneClient
from controlplane.domain.alerts import Alert, Silence
from controlplane.domain.calibrations import StartCalibration
from controlplane.domain.telemetry import DriftCheck, DriftMeasure

MEASURES = {
    "fit_degradation": (
        "Fit degradation",
        "Requests lie farther from their centroids than they did. Cure: refit.",
    ),
    "mix_shift": ("Mix shift", "Topics come in other shares. Notice, and rebalance; not a refit."),
    "union_surprise": (
        "Union surprise",
        "Steps load more experts than predicted, which similarity cannot see.",
    ),
}
VERDICTS: dict[str, tuple[str, Literal["green", "red", "gray"]]] = {
    "ok": (":material/check_circle:", "green"),
    "drift": (":material/error:", "red"),
    "insufficient_data": (":material/hourglass_empty:", "gray"),
}
SILENCES = {"30 min": 1800.0, "2 h": 7200.0, "8 h": 28_800.0, "24 h": 86_400.0}
BARE = {"displayModeBar": False}
RUNBOOKS = Path(__file__).parents[2] / "docs" / "runbooks"
UNKNOWN: tuple[str, Literal["gray"]] = (":material/help:", "gray")


def render(client: ControlPlaneClient) -> None:
    """Draw the page: levers, then one live region."""
    with guarded():
        redraw_when_changed(lambda: [(each.id, each.acknowledged_at) for each in _open_alerts(client)])
        _show_levers(client)
    st.fragment(_show, run_every=current_view().refresh_seconds)(client)


def _open_alerts(client: ControlPlaneClient) -> list[Alert]:
    alerts = fetch(client, "alerts", client.alerts, max_age_seconds=2).value
    return [each for each in alerts if not each.resolved_at]


def _choose(alerts: list[Alert]) -> Alert | None:
    if not alerts:
        # Another widget than the one with choices: that one would keep "none" once an alert is there.
        st.selectbox(
            "Open alert", [], key="no_alert", placeholder="nothing is open", width=300, disabled=True
        )
        return None
    by_id = {alert.id: alert for alert in alerts}
    chosen = st.selectbox(
        "Open alert",
        list(by_id),
        format_func=lambda each: _name(by_id[each]),
        key="alert",
        width=300,
        bind="query-params",
    )
    return by_id[chosen]


def _show_levers(client: ControlPlaneClient) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        alert = _choose(_open_alerts(client))
        seconds = st.selectbox("Silence for", list(SILENCES), key="silence_for", width=110)
        is_seen = st.button(
            "Acknowledge",
            key="acknowledge",
            icon=":material/visibility:",
            disabled=alert is None or alert.acknowledged_at is not None,
        )
        is_hushed = st.button(
            "Silence", key="silence", icon=":material/notifications_off:", disabled=alert is None
        )
        is_refit = st.button("Start refit", key="refit", icon=":material/model_training:", type="primary")
    if alert is not None:
        _show_runbook(alert)
    if is_seen and alert is not None:
        ask(_acknowledgement(client, alert))
    if is_hushed and alert is not None:
        ask(_silence(client, alert, SILENCES[seconds]))
    if is_refit:
        ask(refit(client))


def _show_runbook(alert: Alert) -> None:
    """Show the text here: what the alert names is a file of the project, which no server serves."""
    file = RUNBOOKS / Path(alert.runbook).name
    with st.expander(f"Runbook: {words(alert.rule)}", icon=":material/menu_book:"):
        if file.is_file():
            _, _, text = file.read_text().partition("\n")  # its title is in the label
            st.markdown(text.replace("\n## ", "\n##### "))
        else:
            st.markdown(f"`{alert.runbook}` in the project's repository; this installation is without it.")


def _name(alert: Alert) -> str:
    return f"{words(alert.rule)} · {alert.subject}"


def _acknowledgement(client: ControlPlaneClient, alert: Alert) -> Change:
    return Change(
        title=f"Acknowledge: {_name(alert)}",
        verb="I look after it",
        differences=(Difference(what="looked after by", before="nobody", after="you"),),
        act=partial(_acknowledge, client, alert),
    )


def _acknowledge(client: ControlPlaneClient, alert: Alert, consent: Consent) -> str:
    client.acknowledge(alert.id, consent.reason, idempotency_key=consent.idempotency_key)
    return f"You look after **{_name(alert)}**."


def _silence(client: ControlPlaneClient, alert: Alert, seconds: float) -> Change:
    return Change(
        title=f"Silence: {_name(alert)}",
        verb=f"Silence for {duration(seconds)}",
        differences=(
            Difference(
                what="notifications",
                before="on" if alert.silenced_until is None else f"off until {moment(alert.silenced_until)}",
                after=f"off for {duration(seconds)}",
            ),
        ),
        act=partial(_send_silence, client, alert, seconds),
    )


def _send_silence(client: ControlPlaneClient, alert: Alert, seconds: float, consent: Consent) -> str:
    command = Silence(reason=consent.reason, seconds=seconds)
    done = client.silence(alert.id, command, idempotency_key=consent.idempotency_key)
    return f"**{_name(alert)}** is silent until {moment(done.silenced_until)} UTC; it is still watched."


def refit(client: ControlPlaneClient) -> Change:
    """Return the change that starts a calibration from live samples."""
    return Change(
        title="Start a refit from live samples",
        verb="Start refit",
        differences=(Difference(what="new candidate", before="–", after="fitted on stored live signatures"),),
        show_effect=partial(
            st.markdown,
            "Nothing changes for traffic: the result is a **candidate** that waits for promotion.",
        ),
        act=partial(_start_refit, client),
    )


def _start_refit(client: ControlPlaneClient, consent: Consent) -> str:
    command = StartCalibration(reason=consent.reason)
    run = client.start_calibration(command, idempotency_key=consent.idempotency_key)
    return f"The refit is {run.state.value}; follow it on Calibration, where it can be cancelled."


def _show(client: ControlPlaneClient) -> None:
    view = current_view()
    with panel("Alerts"):
        alerts = fetch(client, "alerts", client.alerts, max_age_seconds=2)
        show_freshness(alerts)
        _show_alerts(alerts.value)
    with guarded():
        kept = fetch(
            client, f"drift/{view.range_name}", lambda: client.drift_checks(view.since()), max_age_seconds=2
        )
        show_freshness(kept)
        checks = kept.value
        for column, (name, (title, text)) in zip(st.columns(3), MEASURES.items(), strict=True):
            with column, panel(title, text, is_tall=True):
                _show_measure(checks, name)
        left, right = st.columns([1.4, 1])
        with left, panel("Occupancy, newest window against the reference"):
            if checks:
                drawn = occupancy_bars(checks[0].occupancy, checks[0].reference_occupancy, "newest window")
                st.plotly_chart(drawn, key="drift_occupancy", config=BARE)
            else:
                show_empty("No drift check in this range.")
        with right, panel("Refit decision", is_tall=True):
            _show_decision(checks)


def _show_alerts(alerts: tuple[Alert, ...]) -> None:
    if not alerts:
        show_empty("No alert, open or past.", ":material/check_circle:")
        return
    # The text says value and limit, and most alerts are not silent: the width goes to what reads.
    hidden = ["value, limit"]
    if all(each.silenced_until is None for each in alerts):
        hidden.append("silent until")
    show_table(
        "alerts",
        {
            "state": [_state(each) for each in alerts],
            "severity": [each.severity for each in alerts],
            "rule": [words(each.rule) for each in alerts],
            "subject": [each.subject for each in alerts],
            "what": [each.summary for each in alerts],
            "value, limit": [f"{number(each.value, 3)}, {number(each.threshold, 3)}" for each in alerts],
            "since": [age(each.started_at) for each in alerts],
            "taken by": [each.acknowledged_by or NOTHING for each in alerts],
            "silent until": [moment(each.silenced_until) for each in alerts],
        },
        height=320,
        hidden=hidden,
    )


def _state(alert: Alert) -> str:
    marks = {"firing": "● firing", "pending": "◔ pending", "resolved": "✓ resolved", "no_data": "? no data"}
    return marks.get(alert.state.value, alert.state.value)


def _show_measure(checks: tuple[DriftCheck, ...], name: str) -> None:
    newest = next((each for check in checks for each in check.measures if each.name == name), None)
    if newest is None:
        show_empty("No drift check in this range.")
        return
    _show_verdict(newest)
    if all(each.value is None for check in checks for each in check.measures if each.name == name):
        show_empty("Too few requests to measure it, in every window of this range or in its reference.")
        return
    st.plotly_chart(drift_statistic(checks, name), key=f"drift_{name}", config=BARE)


def _show_verdict(measure: DriftMeasure) -> None:
    icon, colour = VERDICTS.get(measure.verdict, UNKNOWN)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.badge(words(measure.verdict), icon=icon, color=colour)
        st.caption(
            f"{number(measure.value, 3)}, threshold {number(measure.threshold, 3)}, n = {measure.n:,}",
            width="content",
        )


def _show_decision(checks: tuple[DriftCheck, ...]) -> None:
    if not checks:
        show_empty("No drift check in this range.")
        return
    outcome, colon, why = checks[0].refit_decision.partition(":")
    st.markdown(f"**{words(outcome)}**{colon}{why}")
    st.caption(
        f"Check of {moment(checks[0].at)} UTC over {duration(checks[0].window_seconds)}, against "
        f"v{checks[0].version_number}. {len(checks)} checks in this range."
    )
