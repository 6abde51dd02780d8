"""Calibration: runs as they go, and what came of them; start one, cancel one."""

from dataclasses import replace
from functools import partial

import streamlit as st

from app.calibration_panels import show_report
from app.confirm import Change, Consent, Difference, ask
from app.formats import NOTHING, age, duration, moment, words
from app.kept_data import fetch
from app.panels import guarded, panel, show_empty, show_freshness, show_table
from app.redraw import redraw_when_changed
from app.time_range import current_view
from controlplane.client import ControlPlaneClient
from controlplane.domain.calibrations import CalibrationRun, RunState, StartCalibration, TracePack

TRANSFORMS = ("count_idf", "count", "sqrt_count", "binary", "gate_prob", "gate_logit")
LIVE = "live samples"
MOST_LIVE = 5000
MARK = {
    RunState.QUEUED: "◔ queued",
    RunState.RUNNING: "◑ running",
    RunState.SUCCEEDED: "✓ succeeded",
    RunState.FAILED: "✕ failed",
    RunState.CANCELLED: "■ cancelled",
}
UNDER_WAY = (RunState.QUEUED, RunState.RUNNING)


def render(client: ControlPlaneClient) -> None:
    """Draw the page: levers, live runs, then the report of one of them."""
    with guarded():
        redraw_when_changed(lambda: [(run.id, run.state) for run in _runs(client)])
        _show_start(client)
        runs = _runs(client)
        if not runs:
            with st.container(border=True):
                show_empty("No run yet. Start one from live samples or a trace pack.")
            return
        run = _choose(client, runs)
        st.fragment(_show_runs, run_every=current_view().refresh_seconds)(client)
        show_report(client, run)


def _runs(client: ControlPlaneClient) -> tuple[CalibrationRun, ...]:
    return fetch(client, "runs", client.calibration_runs, max_age_seconds=2).value


def _choose(client: ControlPlaneClient, runs: tuple[CalibrationRun, ...]) -> CalibrationRun:
    by_id = {run.id: run for run in runs}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        chosen = st.selectbox(
            "Run",
            list(by_id),
            format_func=lambda each: _name(by_id[each]),
            key="run",
            bind="query-params",
            width=340,
            index=next((i for i, run in enumerate(runs) if run.state is RunState.SUCCEEDED), 0),
        )
        run = by_id[chosen]
        if st.button(
            "Cancel this run", key="cancel_run", icon=":material/cancel:", disabled=run.state not in UNDER_WAY
        ):
            ask(_cancellation(client, run))
        st.caption(MARK[run.state], width="content")
    return run


def _name(run: CalibrationRun) -> str:
    return f"{moment(run.created_at)} · {words(run.origin)}"


def _show_start(client: ControlPlaneClient) -> None:
    packs = fetch(client, "packs", client.trace_packs, max_age_seconds=30).value
    by_id = {pack.id: pack for pack in packs}
    # Not a popover: it may lie over the dialog that asks for the reason, and catch its clicks.
    with st.expander("Start a calibration", icon=":material/model_training:", key="start_form"):
        origin, amount, groups, form, draw = st.columns(5)
        source = origin.selectbox(
            "From", [LIVE, *by_id], format_func=lambda each: _source(by_id.get(each)), key="start_source"
        )
        n_live = amount.number_input(
            "Newest live requests",
            200,
            MOST_LIVE,
            MOST_LIVE,
            100,
            key="start_n_live",
            disabled=source != LIVE,
        )
        n_clusters = groups.number_input(
            "Clusters", 0, 256, 0, key="start_n_clusters", help="0: as many as decode workers are ready."
        )
        transform = form.selectbox("Transform", TRANSFORMS, format_func=words, key="start_transform")
        seed = draw.number_input("Seed", 0, 1_000_000, 1, key="start_run_seed")
        is_asked = st.button("Start", type="primary", key="start_run")
    if is_asked:
        command = StartCalibration(
            reason="",
            trace_pack_id=None if source == LIVE else source,
            seed=int(seed),
            transform=transform,
            n_live_requests=int(n_live) if source == LIVE else None,
            n_clusters=int(n_clusters) or None,
        )
        ask(_start(client, command, _source(by_id.get(source))))


def _source(pack: TracePack | None) -> str:
    if pack is None:
        return LIVE
    return f"pack {pack.name}, {pack.n_requests:,} requests{'' if pack.has_decode else ', prefill only'}"


def _start(client: ControlPlaneClient, command: StartCalibration, source: str) -> Change:
    clusters = "as decode workers" if command.n_clusters is None else str(command.n_clusters)
    return Change(
        title="Start a calibration",
        verb="Start",
        differences=(
            Difference(what="from", before="–", after=source),
            Difference(what="clusters", before="–", after=clusters),
            Difference(what="transform", before="–", after=words(command.transform)),
        ),
        show_effect=partial(
            st.markdown,
            "Nothing changes for traffic: the result is a **candidate** that waits for promotion.",
        ),
        act=partial(_send_start, client, command),
    )


def _send_start(client: ControlPlaneClient, command: StartCalibration, consent: Consent) -> str:
    sent = replace(command, reason=consent.reason)
    run = client.start_calibration(sent, idempotency_key=consent.idempotency_key)
    return f"The calibration was started at {moment(run.created_at)} UTC. It can be cancelled below."


def _cancellation(client: ControlPlaneClient, run: CalibrationRun) -> Change:
    return Change(
        title="Cancel the calibration",
        verb="Cancel the run",
        differences=(Difference(what="state", before=run.state.value, after="cancelled, nothing kept"),),
        act=partial(_cancel, client, run),
    )


def _cancel(client: ControlPlaneClient, run: CalibrationRun, consent: Consent) -> str:
    client.cancel_calibration(run.id, consent.reason, idempotency_key=consent.idempotency_key)
    return "The calibration stops at its next step."


def _show_runs(client: ControlPlaneClient) -> None:
    with panel("Runs"):
        kept = fetch(client, "runs", client.calibration_runs, max_age_seconds=2)
        show_freshness(kept)
        for run in kept.value:
            if run.state in UNDER_WAY:
                text = f"{run.state.value}{f', {words(run.stage)}' if run.stage else ''} · {run.reason}"
                st.progress(
                    min(max(run.progress_share, 0.0), 1.0), text=f"{100 * run.progress_share:.0f} % · {text}"
                )
        show_table(
            "calibration_runs",
            {
                "state": [MARK[run.state] for run in kept.value],
                "from": [words(run.origin) for run in kept.value],
                "requests": [run.n_live_requests for run in kept.value],
                "clusters": [run.n_clusters for run in kept.value],
                "transform": [words(run.transform) for run in kept.value],
                "queued (UTC)": [moment(run.created_at) for run in kept.value],
                "took": [_took(run) for run in kept.value],
                "who": [run.actor for run in kept.value],
                "why": [run.reason for run in kept.value],
                "error": [run.error or "" for run in kept.value],
            },
            height=320,
        )


def _took(run: CalibrationRun) -> str:
    if run.started_at is None:
        return NOTHING
    if run.finished_at is None:
        return f"started {age(run.started_at)}"
    return duration((run.finished_at - run.started_at).total_seconds())
