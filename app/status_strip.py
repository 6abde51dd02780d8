"""The line at the head of every page: is the control plane there, what is live, who lags, how fresh."""

from datetime import datetime

import streamlit as st

from app.formats import age, duration, moment, version_name
from app.kept_data import Kept, current_outage, fetch, retry_now
from app.panels import guarded
from app.time_range import current_view
from controlplane.client import ControlPlaneClient
from controlplane.domain.fleets import FleetStatus

UPDATED_AT = "updated_at"
AGE_SECONDS = 5


def show_status(client: ControlPlaneClient) -> None:
    """Draw the line; it refreshes by itself and holds no selection."""
    st.fragment(_show, run_every=current_view().refresh_seconds)(client)


def _show(client: ControlPlaneClient) -> None:
    with guarded():
        status = fetch(client, "status", client.status)
        if status.is_stale:
            _show_outage(status)
        _show_line(status)
        return
    _show_outage(None)


def _show_outage(status: Kept[FleetStatus] | None) -> None:
    outage = current_outage()
    if outage is None:
        return
    kept = "" if status is None else f" Shown is what was loaded at {moment(status.at)} UTC."
    st.error(
        f"**Control plane down** since {moment(outage.since)} UTC, for {duration_since(outage.since)}."
        f"{kept} Routers go on with their last configuration; changes cannot be made.",
        icon=":material/cloud_off:",
    )
    st.button("Try again", key="retry_outage", icon=":material/refresh:", on_click=retry_now)


def duration_since(at: datetime) -> str:
    """Write how long something has lasted."""
    return age(at).removesuffix(" ago")


def acknowledged(status: FleetStatus) -> tuple[str, bool]:
    """Say how many routers run the newest generation, and whether all do."""
    n_current = sum(router.generation_applied == status.generation for router in status.routers)
    n_all = len(status.routers)
    return f"{n_current} of {n_all} routers on generation {status.generation}", n_current == n_all > 0


def _show_line(status: Kept[FleetStatus]) -> None:
    now = status.value
    text, is_current = acknowledged(now)
    with st.container(horizontal=True, gap="small", vertical_alignment="center", key="status_line"):
        if now.active_version_number is None:
            st.badge("no active version", icon=":material/hourglass_empty:", color="gray")
        else:
            st.badge(
                f"{version_name(now.active_version_number)} active",
                icon=":material/check_circle:",
                color="green",
            )
        st.badge(f"{now.policy} · tau {now.tau:g}", icon=":material/tune:", color="blue")
        st.badge(
            text,
            icon=":material/sync:" if is_current else ":material/sync_problem:",
            color="green" if is_current else "orange",
        )
        if now.n_lost:
            st.badge(f"{now.n_lost} workers lost", icon=":material/link_off:", color="red")
        st.badge(
            f"{now.n_open_alerts} open alerts" if now.n_open_alerts != 1 else "1 open alert",
            icon=":material/notifications:",
            color="orange" if now.n_open_alerts else "gray",
        )
        st.caption(f"updated {moment(status.at)} UTC", width="content")
    st.session_state[UPDATED_AT] = status.at


def show_age() -> None:
    """Tell how old the page's data is, every few seconds, without fetching anything."""
    st.fragment(_show_age, run_every=AGE_SECONDS)()


def _show_age() -> None:
    updated_at = st.session_state.get(UPDATED_AT)
    if updated_at is None:
        st.caption("not updated yet")
        return
    view = current_view()
    every = "refresh is off" if view.refresh_seconds is None else f"every {duration(view.refresh_seconds)}"
    st.caption(f"Updated {age(updated_at)} · {every}")
