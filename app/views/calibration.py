"""Calibration: runs as they go, and what came of them; start one, cancel one."""

from functools import partial

import streamlit as st

from app.charts_clusters import occupancy_bars, signature_map, similarity_histogram
from app.confirm import Change, Consent, Difference, ask
from app.formats import NOTHING, age, duration, moment, number, short, signed, words
from app.kept_data import fetch
from app.panels import guarded, panel, show_empty, show_freshness, show_table
from app.time_range import current_view
from controlplane.client import ControlPlaneClient
from controlplane.domain.calibrations import CalibrationRun, RunState, StartCalibration, TracePack
from controlplane.domain.versions import Version

TRANSFORMS = ("count_idf", "count", "sqrt_count", "binary", "gate_prob", "gate_logit")
LIVE = "live samples"
MOST_LIVE = 5000
REPORT_SECONDS = 600
BARE = {"displayModeBar": False}
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
        _show_start(client)
        runs = fetch(client, "runs", client.calibration_runs, max_age_seconds=2).value
        if not runs:
            with st.container(border=True):
                show_empty("No run yet. Start one from live samples or a trace pack.")
            return
        run = _choose(client, runs)
        st.fragment(_show_runs, run_every=current_view().refresh_seconds)(client)
        _show_report(client, run)


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
    return run


def _name(run: CalibrationRun) -> str:
    return f"{moment(run.created_at)} · {run.origin} · {run.state.value}"


def _show_start(client: ControlPlaneClient) -> None:
    packs = fetch(client, "packs", client.trace_packs, max_age_seconds=30).value
    by_id = {pack.id: pack for pack in packs}
    with st.popover("Start a calibration", icon=":material/model_training:"):
        source = st.selectbox(
            "From", [LIVE, *by_id], format_func=lambda each: _source(by_id.get(each)), key="start_source"
        )
        n_live = st.number_input(
            "Live requests, newest first",
            200,
            MOST_LIVE,
            MOST_LIVE,
            100,
            key="start_n_live",
            disabled=source != LIVE,
        )
        n_clusters = st.number_input(
            "Clusters (0: as many as decode workers are ready)", 0, 256, 0, key="start_n_clusters"
        )
        transform = st.selectbox("Transform", TRANSFORMS, format_func=words, key="start_transform")
        seed = st.number_input("Seed", 0, 1_000_000, 1, key="start_run_seed")
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
    sent = StartCalibration(
        reason=consent.reason,
        trace_pack_id=command.trace_pack_id,
        n_live_requests=command.n_live_requests,
        n_clusters=command.n_clusters,
        transform=command.transform,
        seed=command.seed,
    )
    run = client.start_calibration(sent)
    return f"The calibration is {run.state.value}. It can be cancelled below."


def _cancellation(client: ControlPlaneClient, run: CalibrationRun) -> Change:
    return Change(
        title="Cancel the calibration",
        verb="Cancel the run",
        differences=(Difference(what="state", before=run.state.value, after="cancelled, nothing kept"),),
        act=partial(_cancel, client, run),
    )


def _cancel(client: ControlPlaneClient, run: CalibrationRun, consent: Consent) -> str:
    client.cancel_calibration(run.id, consent.reason)
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
                "from": [run.origin for run in kept.value],
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


def _show_report(client: ControlPlaneClient, run: CalibrationRun) -> None:
    if run.state is RunState.FAILED:
        st.error(f"The run failed: {run.error}", icon=":material/error:")
        return
    if run.version_id is None:
        with panel("Report"):
            show_empty("The report comes when the run has succeeded.", ":material/hourglass_empty:")
        return
    versions = fetch(client, "versions", client.versions, max_age_seconds=10).value
    version = next((each for each in versions if each.id == run.version_id), None)
    if version is not None:
        _show_version(version)
    projection = fetch(
        client,
        f"projection/{run.version_id}/False",
        lambda: client.projection(run.version_id or "", is_live=False),
        max_age_seconds=REPORT_SECONDS,
    ).value
    left, right = st.columns([1.3, 1])
    with (
        left,
        panel("Signatures it was fitted on", "PCA; centroids outlined. Colour by other things on Clusters."),
    ):
        drawn = signature_map(projection, colour_by="cluster", is_3d=False)
        drawn.update_layout(height=470)
        st.plotly_chart(drawn, key="report_map", config=BARE)
    with right, panel("Balance"):
        st.plotly_chart(
            occupancy_bars(projection.occupancy, projection.reference_occupancy, "projected sample"),
            key="report_balance",
            config=BARE,
        )
        st.plotly_chart(similarity_histogram(projection.points), key="report_similarity", config=BARE)


def _show_version(version: Version) -> None:
    row = st.columns(4)
    tiles = (
        ("Held-out active experts", signed(version.held_out_percent), "against random batches"),
        ("rho, prefill to decode", number(version.rho, 2), "1 is a perfect predictor"),
        ("Layers kept", str(version.n_layers_kept), words(version.transform)),
        (
            f"v{version.number}, {version.state.value}",
            f"{version.n_requests:,}",
            f"requests · {short(version.content_hash)}",
        ),
    )
    for column, (label, value, note) in zip(row, tiles, strict=True):
        column.metric(label, value, delta=note, delta_color="off", delta_arrow="off", border=True)
    if version.metrics:
        facts = " · ".join(f"{words(name)} {value:.4g}" for name, value in sorted(version.metrics.items()))
        st.caption(facts)
