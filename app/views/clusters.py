"""Clusters: where requests lie in the space of signatures, and why each went where it did."""

import streamlit as st

from app.charts_clusters import (
    COLOUR_BY,
    align_to,
    decision_bars,
    expert_map,
    occupancy_bars,
    raw_expert_map,
    signature_map,
    similarity_histogram,
)
from app.formats import age, number, short, version_name, words
from app.kept_data import fetch
from app.panels import guarded, panel, show_empty, show_freshness
from app.redraw import redraw_when_changed
from controlplane.client import ControlPlaneClient
from controlplane.domain.calibrations import Projection
from controlplane.domain.telemetry import SampledDecision
from controlplane.domain.versions import Version, VersionState

# The map holds still while somebody picks in it: it is fetched anew on Refresh, or when it is this old.
HOLD_SECONDS = 300
POINT_LIMIT = 2000
PICKED = "request"


def render(client: ControlPlaneClient) -> None:
    """Draw the page; the map is still until it is asked to move, so that a selection survives."""
    with guarded():
        redraw_when_changed(lambda: [each.id for each in _versions(client)])
        versions = _versions(client)
        if not versions:
            with st.container(border=True):
                show_empty("No version yet. Calibrate one on the Calibration page, then come back.")
            return
        _show(client, versions)


def _versions(client: ControlPlaneClient) -> tuple[Version, ...]:
    return fetch(client, "versions", client.versions, max_age_seconds=2).value


def _show(client: ControlPlaneClient, versions: tuple[Version, ...]) -> None:
    version, other, is_live, colour_by, is_3d = _controls(versions)
    hold = 0 if st.session_state.get("refresh_now") else HOLD_SECONDS
    projection = _projection(client, version, is_live=is_live, hold=hold)
    left, right = st.columns([1.9, 1])
    with (
        left,
        panel(
            f"Signatures on {version_name(version.number)}",
            "PCA of the calibration; each point a request. A centroid lies farther out than its requests: "
            "it has their mean direction, and length 1, which their mean has not.",
            is_tall=True,
        ),
    ):
        _show_map(projection, colour_by, is_3d=is_3d)
    with right, panel("Picked request", is_tall=True):
        _show_picked(client, projection)
    if other is not None:
        with panel(f"The same on {version_name(other.number)}, turned to match"):
            _show_other(client, projection, other, is_live=is_live, colour_by=colour_by, is_3d=is_3d)
    left, right = st.columns(2)
    with left, panel("Occupancy", "Share of requests in each cluster, now and when the version was made."):
        if sum(projection.occupancy) == 0:
            show_empty("No sampled request yet.")
        else:
            name = "live" if projection.is_live else "calibration"
            st.plotly_chart(
                occupancy_bars(projection.occupancy, projection.reference_occupancy, name),
                key="occupancy",
                config={"displayModeBar": False},
            )
    with right, panel("Similarity to nearest centroid"):
        if not projection.points:
            show_empty("No sampled request yet.")
        else:
            st.plotly_chart(
                similarity_histogram(projection.points), key="similarity", config={"displayModeBar": False}
            )
    with panel(
        "Experts of a cluster", "What a cluster's requests have in common: the experts their tokens use."
    ):
        _show_experts(client, version)


def _controls(versions: tuple[Version, ...]) -> tuple[Version, Version | None, bool, str, bool]:
    numbers = [version.number for version in versions]
    by_number = {version.number: version for version in versions}
    active = next((v.number for v in versions if v.state is VersionState.ACTIVE), numbers[0])
    row = st.columns([1.1, 1, 1, 1.6, 0.8], vertical_alignment="bottom")
    chosen = row[0].selectbox(
        "Version",
        numbers,
        index=numbers.index(active),
        key="version",
        bind="query-params",
        format_func="v{}".format,
    )
    others = [None, *(number for number in numbers if number != chosen)]
    other = row[1].selectbox(
        "Compare with",
        others,
        format_func=lambda number: "nothing" if number is None else f"v{number}",
        key="compare",
    )
    basis = row[2].segmented_control(
        "Requests", ["live", "calibration"], default="live", required=True, key="basis", bind="query-params"
    )
    colour_by = row[3].segmented_control(
        "Colour by", COLOUR_BY, default="cluster", required=True, key="colour", bind="query-params"
    )
    axes = row[4].segmented_control(
        "Axes", ["2-D", "3-D"], default="2-D", required=True, key="axes", bind="query-params"
    )
    compared = None if other is None else by_number[other]
    return by_number[chosen], compared, basis == "live", str(colour_by), axes == "3-D"


def _projection(client: ControlPlaneClient, version: Version, *, is_live: bool, hold: float) -> Projection:
    kept = fetch(
        client,
        f"projection/{version.id}/{is_live}",
        lambda: client.projection(version.id, is_live=is_live, limit=POINT_LIMIT),
        max_age_seconds=hold,
    )
    show_freshness(kept)
    return kept.value


def _show_map(projection: Projection, colour_by: str, *, is_3d: bool) -> None:
    if not projection.points:
        show_empty(
            "No sampled request yet. Samples come once routers report traffic; look at the calibration's."
        )
    picked = st.query_params.get(PICKED)
    drawn = signature_map(projection, colour_by=colour_by, is_3d=is_3d, picked=picked)
    key = f"map_{projection.version_id}_{colour_by}_{is_3d}_{projection.is_live}"
    event = st.plotly_chart(
        drawn, key=key, on_select="rerun", selection_mode="points", config={"scrollZoom": True}
    )
    chosen = [point for point in event["selection"]["points"] if point.get("customdata")]
    if chosen and chosen[0]["customdata"][0] != picked:
        st.query_params[PICKED] = chosen[0]["customdata"][0]
        st.rerun()
    st.caption(
        f"{len(projection.points):,} requests, {len(projection.centroids)} centroids. "
        "Click a point to see its decision. The map holds still until you press Refresh (U)."
    )


def _show_picked(client: ControlPlaneClient, projection: Projection) -> None:
    request_id = st.query_params.get(PICKED)
    if request_id is None:
        show_empty("Click a point in the map to see where its request went, and why.", ":material/ads_click:")
        return
    point = next((each for each in projection.points if each.request_id == request_id), None)
    st.markdown(f"**Request** `{short(request_id, 18)}`")
    if point is not None:
        st.caption(
            f"cluster {point.cluster} · similarity {point.similarity:.2f} · {point.label or 'no label'}"
        )
    if point is not None and not projection.is_live:
        show_empty("A request of the calibration: it was not routed, so there is no decision.")
    else:
        decision = fetch(
            client, f"decision/{request_id}", lambda: client.decision(request_id), max_age_seconds=3600
        )
        _show_decision(decision.value)
    if st.button("Let go", key="let_go", type="tertiary", icon=":material/close:"):
        del st.query_params[PICKED]
        st.rerun()


def _show_decision(decision: SampledDecision) -> None:
    st.markdown(
        f":material/arrow_forward: **{decision.decode_worker}**, {words(decision.reason)}, "
        f"{age(decision.at)}  \n"
        f":small[prefilled on {decision.prefill_worker} · {version_name(decision.version_number)} · arm "
        f"{decision.arm} · {words(decision.outcome)}]"
    )
    st.markdown(
        f"TPOT **{number(decision.tpot_ms, 1, 'ms')}** · TTFT **{number(decision.ttft_ms, 0, 'ms')}** · "
        f"{decision.prompt_tokens:,} prompt and {decision.output_tokens:,} output tokens"
    )
    if decision.similarities:
        st.plotly_chart(
            decision_bars(decision.similarities, decision.band, decision.decode_worker),
            key="decision",
            config={"displayModeBar": False},
        )
    loads = ", ".join(f"{name} {decision.in_flight.get(name, 0)}" for name in decision.band)
    st.caption(f"Band of {len(decision.band)}; in flight: {loads or 'unknown'}.")


def _show_other(
    client: ControlPlaneClient,
    projection: Projection,
    other: Version,
    *,
    is_live: bool,
    colour_by: str,
    is_3d: bool,
) -> None:
    second = _projection(client, other, is_live=is_live, hold=HOLD_SECONDS)
    turned, n_shared = align_to(projection, second)
    picked = st.query_params.get(PICKED)
    st.plotly_chart(
        signature_map(turned, colour_by=colour_by, is_3d=is_3d, picked=picked), key=f"other_{other.id}"
    )
    st.caption(
        f"Turned to match on {n_shared:,} requests that both show."
        if n_shared
        else "Too few requests are in both to turn it: axes may differ in sign and order."
    )


def _show_experts(client: ControlPlaneClient, version: Version) -> None:
    left, right, _ = st.columns([1, 1.4, 2])
    cluster = left.selectbox("Cluster", range(version.n_centroids), key="cluster", bind="query-params")
    order = right.segmented_control(
        "Experts", ["most used", "all, by number"], default="most used", required=True, key="expert_order"
    )
    kept = fetch(
        client,
        f"experts/{version.id}/{cluster}",
        lambda: client.cluster_experts(version.id, cluster),
        max_age_seconds=HOLD_SECONDS,
    )
    show_freshness(kept)
    if not kept.value.use or kept.value.n_requests == 0:
        show_empty("No request of this cluster was sampled yet.")
        return
    drawn = expert_map(kept.value) if order == "most used" else raw_expert_map(kept.value)
    st.plotly_chart(drawn, key="experts", config={"displayModeBar": False})
    st.caption(f"Mean over {kept.value.n_requests:,} requests.")
