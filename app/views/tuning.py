"""Tuning: the live knobs, what another tau would do to recent traffic, and every revision."""

from functools import partial

import streamlit as st

from app.charts_control import what_if
from app.confirm import Change, Consent, Difference, ask
from app.formats import duration, moment, number, signed, words
from app.kept_data import Kept, fetch
from app.panels import guarded, panel, show_empty, show_freshness, show_table
from app.redraw import redraw_when_changed
from controlplane.client import ControlPlaneClient
from controlplane.domain.versions import RoutingSettings, TauPoint, Tune, TuningPreview

POLICIES = ("eldr", "eldr_capped", "join_shortest_queue", "power_of_two_choices", "round_robin", "random")
REVERTS = {"never": None, "after 5 min": 300.0, "after 30 min": 1800.0, "after 2 h": 7200.0}
MAX_TAU = 0.5
PREVIEW_SECONDS = 30
BARE = {"displayModeBar": False}
CURVES = (
    ("similarity_kept_share", "similarity kept (%)", 100.0),
    ("load_max_over_mean", "load, max over mean (1)", 1.0),
    ("predicted_union", "active experts a step", 1.0),
    ("predicted_tpot_p50_ms", "TPOT P50 (ms)", 1.0),
)


def render(client: ControlPlaneClient) -> None:
    """Draw the page."""
    with guarded():
        redraw_when_changed(lambda: _settings(client).value.revision)
        kept = _settings(client)
        show_freshness(kept)
        left, right = st.columns([1, 2.4])
        with left, panel("Knobs"):
            command = _show_knobs(kept.value)
            _show_lever(client, kept.value, command)
        with right, panel("What if", "Recent sampled traffic, replayed with these knobs at several tau."):
            _show_what_if(client, command)
        with panel("Revisions"):
            _show_revisions(client)


def _settings(client: ControlPlaneClient) -> Kept[RoutingSettings]:
    return fetch(client, "settings", client.settings, max_age_seconds=2)


def _show_knobs(now: RoutingSettings) -> Tune:
    st.caption(f"Revision {now.revision}, by {now.changed_by}, {moment(now.changed_at)} UTC: {now.reason}")
    suffix = f"_{now.revision}"
    policies = list(dict.fromkeys([*POLICIES, now.policy]))
    policy = st.selectbox(
        "Policy", policies, index=policies.index(now.policy), format_func=words, key=f"policy{suffix}"
    )
    tau = st.slider(
        "tau (similarity that may be given up for a less loaded worker)",
        0.0,
        max(MAX_TAU, now.tau),
        now.tau,
        0.005,
        format="%.3f",
        key=f"tau{suffix}",
    )
    load_cap = st.number_input(
        "Load cap (times mean load, 0 is none)",
        0.0,
        10.0,
        now.load_cap or 0.0,
        0.05,
        key=f"cap{suffix}",
        disabled=policy != "eldr_capped",
    )
    share = st.slider(
        "Control share of time windows (%)", 0, 50, round(100 * now.control_share), 1, key=f"share{suffix}"
    )
    revert = st.selectbox("Take back by itself", list(REVERTS), key=f"revert{suffix}")
    return Tune(
        reason="preview",
        policy=policy if policy != now.policy else None,
        tau=tau if abs(tau - now.tau) > 1e-9 else None,
        load_cap=load_cap if load_cap != (now.load_cap or 0.0) else None,
        control_share=share / 100 if share != round(100 * now.control_share) else None,
        auto_revert_seconds=REVERTS[revert],
    )


def _show_lever(client: ControlPlaneClient, now: RoutingSettings, command: Tune) -> None:
    is_changed = any(
        value is not None for value in (command.policy, command.tau, command.load_cap, command.control_share)
    )
    is_asked = st.button("Make it live", type="primary", key="tune", disabled=not is_changed, width="stretch")
    if is_asked:
        preview = _preview(client, command)
        ask(_change(client, now, command, preview))


def _preview(client: ControlPlaneClient, command: Tune) -> TuningPreview:
    name = f"tuning/{command.policy}/{command.tau}/{command.load_cap}/{command.control_share}"
    with st.spinner("Replaying recent traffic"):
        return fetch(
            client, name, lambda: client.preview_tuning(command), max_age_seconds=PREVIEW_SECONDS
        ).value


def _differences(now: RoutingSettings, command: Tune) -> tuple[Difference, ...]:
    rows = []
    if command.policy is not None:
        rows.append(Difference(what="policy", before=words(now.policy), after=words(command.policy)))
    if command.tau is not None:
        rows.append(Difference(what="tau", before=f"{now.tau:g}", after=f"{command.tau:g}"))
    if command.load_cap is not None:
        rows.append(Difference(what="load cap", before=_cap(now.load_cap), after=_cap(command.load_cap)))
    if command.control_share is not None:
        rows.append(
            Difference(
                what="control share",
                before=f"{100 * now.control_share:.0f} %",
                after=f"{100 * command.control_share:.0f} %",
            )
        )
    if command.auto_revert_seconds is not None:
        rows.append(
            Difference(what="taken back", before="–", after=f"after {duration(command.auto_revert_seconds)}")
        )
    return tuple(rows)


def _cap(load_cap: float | None) -> str:
    return f"{load_cap:g} × mean" if load_cap else "none"


def _change(
    client: ControlPlaneClient,
    now: RoutingSettings,
    command: Tune,
    preview: TuningPreview | None,
    *,
    is_undo: bool = False,
) -> Change:
    back = Tune(
        reason="undo",
        policy=now.policy if command.policy is not None else None,
        tau=now.tau if command.tau is not None else None,
        load_cap=(now.load_cap or 0.0) if command.load_cap is not None else None,
        control_share=now.control_share if command.control_share is not None else None,
    )
    return Change(
        title="Take the change of the knobs back" if is_undo else "Change the live knobs",
        verb="Take it back" if is_undo else "Make it live",
        differences=_differences(now, command),
        act=partial(_tune, client, command, now.revision),
        show_effect=None if preview is None else partial(_show_effect, preview),
        undo=None if is_undo else _change(client, _after(now, command), back, None, is_undo=True),
        suggested_reason=f"undo of revision {now.revision}" if is_undo else "",
    )


def _after(now: RoutingSettings, command: Tune) -> RoutingSettings:
    """Return the settings as they will be, for the diff of Undo."""
    return RoutingSettings(
        revision=now.revision + 1,
        generation=now.generation + 1,
        policy=now.policy if command.policy is None else command.policy,
        tau=now.tau if command.tau is None else command.tau,
        load_cap=now.load_cap if command.load_cap is None else (command.load_cap or None),
        control_share=now.control_share if command.control_share is None else command.control_share,
        changed_at=now.changed_at,
        changed_by=now.changed_by,
        reason=now.reason,
        revert_at=None,
    )


def _tune(client: ControlPlaneClient, command: Tune, revision: int, consent: Consent) -> str:
    sent = Tune(
        reason=consent.reason,
        policy=command.policy,
        tau=command.tau,
        load_cap=command.load_cap,
        control_share=command.control_share,
        auto_revert_seconds=command.auto_revert_seconds,
    )
    done = client.tune(sent, revision=revision)
    what = f"{words(done.policy)}, tau {done.tau:g}, generation {done.generation}"
    return f"**Revision {done.revision} is live**: {what}."


def _show_effect(preview: TuningPreview) -> None:
    before, after = _at(preview.curve, preview.before.tau), _at(preview.curve, preview.tau)
    if after is None:
        st.markdown("Not known: too few sampled requests to replay.")
        return
    if before is None or before is after:
        st.markdown(
            f"Replayed on {preview.n_requests:,} requests: "
            f"{number(after.predicted_union)} active experts a step, "
            f"load max over mean {number(after.load_max_over_mean, 2)}, "
            f"TPOT P50 {number(after.predicted_tpot_p50_ms, 1, 'ms')}."
        )
        return
    rows = [
        f"| {title} | {_scaled(a, scale)} | **{_scaled(b, scale)}** |"
        for metric, title, scale in CURVES
        for a, b in [(getattr(before, metric), getattr(after, metric))]
    ]
    head = [f"| at tau | {before.tau:g} | {after.tau:g} |", "|---|---|---|"]
    st.markdown("\n".join(head + rows))
    change = 100 * (after.predicted_union / before.predicted_union - 1)
    st.caption(
        f"Active experts {signed(change)}, with the knobs as proposed, "
        f"on {preview.n_requests:,} replayed requests."
    )


def _scaled(value: float | None, scale: float) -> str:
    return number(None if value is None else scale * value, 2)


def _at(curve: tuple[TauPoint, ...], tau: float) -> TauPoint | None:
    return next((point for point in curve if abs(point.tau - tau) < 1e-9), None)


def _show_what_if(client: ControlPlaneClient, command: Tune) -> None:
    preview = _preview(client, command)
    if not preview.curve:
        show_empty("Not enough sampled requests to replay, or no active version. At least 100 are needed.")
        return
    columns = st.columns(2) * 2
    for column, (metric, title, scale) in zip(columns, CURVES, strict=True):
        if all(getattr(point, metric) is None for point in preview.curve):
            column.caption(f"{title}: no latency model of this fleet is known.")
            continue
        drawn = what_if(preview.curve, metric, title, now=preview.before.tau, wanted=preview.tau, scale=scale)
        column.plotly_chart(drawn, key=f"what_if_{metric}", config=BARE)
    st.caption(
        f"{preview.n_requests:,} newest sampled requests, replayed with policy {words(preview.policy)}."
    )


def _show_revisions(client: ControlPlaneClient) -> None:
    rows = fetch(client, "revisions", client.settings_revisions, max_age_seconds=2).value
    if not rows:
        show_empty("No revision yet.")
        return
    show_table(
        "revisions",
        {
            "revision": [each.revision for each in rows],
            "at (UTC)": [moment(each.changed_at) for each in rows],
            "policy": [words(each.policy) for each in rows],
            "tau": [each.tau for each in rows],
            "load cap": [_cap(each.load_cap) for each in rows],
            "control share (%)": [100 * each.control_share for each in rows],
            "taken back (UTC)": [moment(each.revert_at) for each in rows],
            "who": [each.changed_by for each in rows],
            "why": [each.reason for each in rows],
        },
        height=300,
    )
