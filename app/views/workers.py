"""Workers: the experts each loads a step, its load and speed; drain and resume."""

from functools import partial

import streamlit as st

from app.charts_workers import cluster_mix, union_bars, union_map, worker_lines
from app.confirm import Change, Consent, Difference, ask
from app.formats import age, number, signed, words
from app.kept_data import Kept, fetch
from app.panels import guarded, panel, show_empty, show_freshness, show_table
from app.redraw import redraw_when_changed
from app.time_range import current_view
from controlplane.client import ControlPlaneClient
from controlplane.domain.fleets import Worker, WorkerState
from controlplane.domain.telemetry import MetricPoint, WorkerUnion

NO_STEPS = "No decode step was reported in this range."
STATE_MARK = {
    WorkerState.READY: "● ready",
    WorkerState.JOINING: "◔ joining",
    WorkerState.DRAINING: "◑ draining",
    WorkerState.LOST: "✕ lost",
}
BARE = {"displayModeBar": False}


def render(client: ControlPlaneClient) -> None:
    """Draw the page: controls and levers, then one live region."""
    with guarded():
        redraw_when_changed(lambda: [(each.worker_id, each.state) for each in _workers(client).value])
        _show_levers(client)
    scale = st.segmented_control(
        "Heat map shows",
        ["experts a step", "against a random mix"],
        default="experts a step",
        required=True,
        key="union_scale",
        bind="query-params",
    )
    live = st.fragment(_show, run_every=current_view().refresh_seconds)
    live(client, is_relative=scale != "experts a step")


def _workers(client: ControlPlaneClient) -> Kept[tuple[Worker, ...]]:
    return fetch(client, "workers", client.workers, max_age_seconds=2)


def _show_levers(client: ControlPlaneClient) -> None:
    workers = _workers(client).value
    if not workers:
        return
    ids = [worker.worker_id for worker in decode_first(workers)]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        chosen = st.selectbox("Worker", ids, key="worker", bind="query-params", width=220)
        worker = next(each for each in workers if each.worker_id == chosen)
        is_draining = worker.state is WorkerState.DRAINING
        if st.button(
            "Resume" if is_draining else "Drain",
            icon=":material/swap_vert:",
            key="drain_or_resume",
            disabled=worker.state is WorkerState.LOST,
        ):
            change = _change(client, worker, is_drain=not is_draining)
            ask(change)
        st.caption(
            f"{STATE_MARK[worker.state]} · {worker.role} · {worker.engine} {worker.engine_version} · "
            f"self-test {words(worker.self_test)}"
        )


def _change(client: ControlPlaneClient, worker: Worker, *, is_drain: bool, is_undo: bool = False) -> Change:
    verb, act = ("Drain", client.drain) if is_drain else ("Resume", client.resume)
    return Change(
        title=f"{verb} {worker.worker_id}",
        verb=verb,
        differences=(
            Difference(
                what="state",
                before="ready" if is_drain else "draining",
                after="draining" if is_drain else "ready",
            ),
            Difference(
                what="new requests", before="yes" if is_drain else "no", after="no" if is_drain else "yes"
            ),
        ),
        act=partial(_act, act, worker.worker_id, "drains" if is_drain else "takes requests again"),
        show_effect=partial(_show_effect, client, worker, is_drain=is_drain),
        undo=None if is_undo else _change(client, worker, is_drain=not is_drain, is_undo=True),
        suggested_reason="undo" if is_undo else "",
    )


def _act(act: object, worker_id: str, what: str, consent: Consent) -> str:
    assert callable(act), "the client's drain or resume"
    act(worker_id, consent.reason, idempotency_key=consent.idempotency_key)
    return f"**{worker_id}** {what}."


def _show_effect(client: ControlPlaneClient, worker: Worker, *, is_drain: bool) -> None:
    with guarded():
        status = fetch(client, "status", client.status, max_age_seconds=10).value
        n_ready = status.n_ready_decode if worker.role == "decode" else status.n_ready_prefill
        after = n_ready - 1 if is_drain else n_ready + 1
        st.markdown(
            f"{worker.role} workers ready: {n_ready} → **{after}**, so each takes "
            f"{signed(100 * (n_ready / after - 1)) if after else 'no'} requests. Running streams go on."
        )
        if after == 0:
            st.error("No worker would be left: every request would fail.")


def _show(client: ControlPlaneClient, *, is_relative: bool) -> None:
    view = current_view()
    with panel(
        "Active experts by worker and layer", "Distinct experts a decode step loads: fewer is faster."
    ):
        unions = fetch(
            client, f"unions/{view.range_name}", lambda: client.unions(view.since()), max_age_seconds=2
        )
        show_freshness(unions)
        if unions.value:
            st.plotly_chart(union_map(unions.value, is_relative=is_relative), key="union_map", config=BARE)
        else:
            show_empty(NO_STEPS)
    left, right = st.columns(2)
    with (
        left,
        panel("Observed against a random mix", "The same batch, drawn from all of the fleet's traffic."),
    ):
        unions = fetch(
            client, f"unions/{view.range_name}", lambda: client.unions(view.since()), max_age_seconds=2
        )
        if unions.value:
            st.plotly_chart(union_bars(unions.value), key="union_bars", config=BARE)
        else:
            show_empty(NO_STEPS)
    with right, panel("Clusters by worker", "Of the newest sampled decisions."):
        decisions = fetch(client, "decisions", lambda: client.decisions(500), max_age_seconds=2)
        show_freshness(decisions)
        if any(each.cluster is not None for each in decisions.value):
            st.plotly_chart(cluster_mix(decisions.value), key="cluster_mix", config=BARE)
        else:
            show_empty("No sampled decision by cluster yet: these come once a version is active.")
    with panel("TPOT P50 by worker"):
        points = _points(client)
        if points:
            drawn = worker_lines(points, "tpot_p50_ms", "TPOT P50 (ms)")
            st.plotly_chart(drawn, key="worker_tpot", config=BARE)
        else:
            show_empty("No request finished in this range.")
    with panel("Workers"):
        _show_workers(client)


def _points(client: ControlPlaneClient) -> tuple[MetricPoint, ...]:
    view = current_view()
    name = f"metrics/worker/{view.range_name}"
    return fetch(client, name, lambda: client.metrics("worker", view.since()), max_age_seconds=2).value


def _show_workers(client: ControlPlaneClient) -> None:
    view = current_view()
    workers = _workers(client)
    show_freshness(workers)
    if not workers.value:
        show_empty("No worker has reported yet. They register with their first heartbeat.")
        return
    routers = fetch(client, "routers", client.routers, max_age_seconds=2).value
    unions = fetch(
        client, f"unions/{view.range_name}", lambda: client.unions(view.since()), max_age_seconds=2
    ).value
    newest = {point.worker_id: point for point in _points(client) if point.tpot_p50_ms is not None}
    by_worker = {union.worker_id: union for union in unions}
    rows = decode_first(workers.value)
    show_table(
        "workers",
        {
            "worker": [each.worker_id for each in rows],
            "state": [STATE_MARK[each.state] for each in rows],
            "role": [each.role for each in rows],
            "in flight": [sum(r.in_flight.get(each.worker_id, 0) for r in routers) for each in rows],
            "batch": [_rounded(by_worker.get(each.worker_id)) for each in rows],
            "TPOT P50 (ms)": [number(_tpot(newest.get(each.worker_id))) for each in rows],
            "observed / predicted": [_surprise(by_worker.get(each.worker_id)) for each in rows],
            "self-test": [words(each.self_test) for each in rows],
            "seen": [age(each.last_seen_at) for each in rows],
        },
        height=460,
    )


def decode_first(workers: tuple[Worker, ...]) -> list[Worker]:
    """Return the decode workers, then the others."""
    return sorted(workers, key=lambda worker: worker.role != "decode")


def _tpot(point: MetricPoint | None) -> float | None:
    return None if point is None else point.tpot_p50_ms


def _rounded(union: WorkerUnion | None) -> str:
    return number(None if union is None else union.mean_batch)


def _surprise(union: WorkerUnion | None) -> str:
    return number(None if union is None else union.observed_over_predicted, 2)
