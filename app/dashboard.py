"""The client and the navigation; run it with `eldr dashboard`.

Its pages stand in `views`: Streamlit takes a folder `pages` beside this file for pages of its own, and shows
a blank one where the first visit after a start is to the address of a page.
"""

from collections.abc import Callable

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from app.confirm import show_notice, show_pending
from app.icon import ICON
from app.kept_data import fetch
from app.panels import guarded
from app.sign_in import show_sign_in, show_sign_out, signed_in_client
from app.status_strip import show_age, show_status
from app.time_range import show_time_range
from app.views import (
    audit,
    calibration,
    clusters,
    drift_and_alerts,
    experiments,
    overview,
    tuning,
    versions,
    workers,
)
from controlplane.client import ControlPlaneClient

PAGES = {
    "Watch": (
        ("Overview", ":material/monitoring:", "overview", overview.render),
        ("Clusters", ":material/scatter_plot:", "clusters", clusters.render),
        ("Workers", ":material/dns:", "workers", workers.render),
        ("Drift & alerts", ":material/notifications:", "drift-and-alerts", drift_and_alerts.render),
    ),
    "Act": (
        ("Versions", ":material/deployed_code_history:", "versions", versions.render),
        ("Tuning", ":material/tune:", "tuning", tuning.render),
        ("Experiments", ":material/science:", "experiments", experiments.render),
        ("Calibration", ":material/model_training:", "calibration", calibration.render),
    ),
    "Look back": (("Audit", ":material/history_edu:", "audit", audit.render),),
}
FLEETS_FOR_SECONDS = 60


def main() -> None:
    """Draw the page that the address names."""
    st.set_page_config(page_title="ELDR", page_icon=ICON, layout="wide")
    client = signed_in_client()
    if client is None:
        st.navigation([st.Page(show_sign_in, title="Sign in")], position="hidden").run()
        return
    with st.sidebar:
        client = _choose_fleet(client)
        show_time_range()
        show_age()
        show_sign_out()
    pages = {section: [_page(client, *entry) for entry in entries] for section, entries in PAGES.items()}
    page = st.navigation(pages)
    st.title(page.title)
    show_status(client)
    show_notice(client)
    page.run()
    show_pending(client)


def _page(
    client: ControlPlaneClient, title: str, icon: str, path: str, render: Callable[[ControlPlaneClient], None]
) -> StreamlitPage:
    return st.Page(
        lambda: render(client), title=title, icon=icon, url_path=path, default=render is overview.render
    )


def _choose_fleet(client: ControlPlaneClient) -> ControlPlaneClient:
    names = [client.fleet]
    with guarded():
        fleets = fetch(client, "fleets", client.fleets, max_age_seconds=FLEETS_FOR_SECONDS).value
        names = sorted({client.fleet, *(fleet.name for fleet in fleets)})
    name = st.selectbox("Fleet", names, index=names.index(client.fleet), key="fleet", bind="query-params")
    return client.for_fleet(name)


main()
