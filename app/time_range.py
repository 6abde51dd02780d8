"""The time range and the auto-refresh: in the address, so that a link shows the same view."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import streamlit as st

RANGES = {"15m": 900, "1h": 3600, "6h": 21_600, "24h": 86_400, "7d": 604_800}
REFRESHES: dict[str, float | None] = {"off": None, "5s": 5, "15s": 15, "60s": 60}
DEFAULT_RANGE = "1h"
DEFAULT_REFRESH = "15s"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What the viewer looks at; `refresh_seconds` None is no refresh."""

    range_name: str
    refresh_seconds: float | None

    def since(self, now: datetime | None = None) -> datetime:
        """Return the start of the range."""
        now = datetime.now(UTC) if now is None else now
        return now - timedelta(seconds=RANGES[self.range_name])


def current_view() -> View:
    """Read the range and the refresh from the widgets, or from their defaults before these are drawn."""
    range_name = st.session_state.get("range", DEFAULT_RANGE)
    refresh = st.session_state.get("refresh", DEFAULT_REFRESH)
    is_paused = bool(st.session_state.get("paused", False))
    return View(
        range_name=range_name if range_name in RANGES else DEFAULT_RANGE,
        refresh_seconds=None if is_paused else REFRESHES.get(refresh),
    )


def show_time_range() -> None:
    """Draw the controls."""
    st.selectbox(
        "Time range: the last",
        # The address carries what is shown: a name for people would make a link that nobody could type.
        list(RANGES),
        index=list(RANGES).index(DEFAULT_RANGE),
        key="range",
        bind="query-params",
    )
    st.segmented_control(
        "Auto-refresh",
        list(REFRESHES),
        default=DEFAULT_REFRESH,
        required=True,
        key="refresh",
        bind="query-params",
    )
    left, right = st.columns([1, 1], vertical_alignment="center")
    left.toggle("Pause", key="paused", help="Hold all live regions still; your selections stay either way.")
    right.button("Refresh", icon=":material/refresh:", key="refresh_now", shortcut="U", width="stretch")
