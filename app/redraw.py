"""Controls that act on what is still so: a page is drawn anew once what they stand on has changed."""

from collections.abc import Callable
from contextlib import suppress

import streamlit as st

from app.confirm import PENDING
from app.time_range import current_view
from controlplane.client_transport import ClientError


def redraw_when_changed(read: Callable[[], object]) -> None:
    """Watch what the page's controls are drawn from, at the pace of its refresh; draws nothing itself.

    `read` returns it through `fetch`, so that looking costs no call of its own where a live region has just
    loaded it. Controls stand outside live regions, where a selection survives, and so stay as they were.
    """
    drawn = read()

    def look() -> None:
        if PENDING in st.session_state:
            return  # nothing moves under a dialog
        with suppress(ClientError):  # the line at the head tells of it
            if read() != drawn:
                st.rerun()

    st.fragment(look, run_every=current_view().refresh_seconds)()
