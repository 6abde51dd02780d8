"""What was fetched last, kept while the control plane is away, and since when it has been away."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Generic, TypeVar

import streamlit as st

from controlplane.client import ControlPlaneClient
from controlplane.client_transport import Unreachable

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
KEPT = "kept_data"
OUTAGE = "outage"
# After a failed call the next ones of the same redraw fail at once: a page of ten panels waits one time-out.
RETRY_AFTER_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """Since when the control plane has given no answer."""

    since: datetime
    last_tried_at: datetime
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept(Generic[T_co]):
    """A fetched value, when it was fetched, and whether the latest try failed."""

    value: T_co
    at: datetime
    is_stale: bool


def current_outage() -> Outage | None:
    """Return the outage under way."""
    outage: Outage | None = st.session_state.get(OUTAGE)
    return outage


def fetch(
    client: ControlPlaneClient, name: str, call: Callable[[], T], *, max_age_seconds: float = 0.0
) -> Kept[T]:
    """Fetch a value, or keep the last one while the control plane does not answer.

    `name` tells the value apart within a fleet. A value younger than `max_age_seconds` is not fetched anew.
    """
    store: dict[tuple[str, str], Kept[T]] = st.session_state.setdefault(KEPT, {})
    key = (client.fleet, name)
    now = datetime.now(UTC)
    kept = store.get(key)
    if kept is not None and not kept.is_stale and (now - kept.at).total_seconds() < max_age_seconds:
        return kept
    try:
        value = _call(call, now)
    except Unreachable:
        if kept is None:
            raise
        return Kept(value=kept.value, at=kept.at, is_stale=True)
    st.session_state.pop(OUTAGE, None)
    store[key] = Kept(value=value, at=now, is_stale=False)
    return store[key]


def forget(client: ControlPlaneClient) -> None:
    """Forget what was fetched of a fleet, after a change, and try again at once."""
    store = st.session_state.get(KEPT, {})
    st.session_state[KEPT] = {key: kept for key, kept in store.items() if key[0] != client.fleet}
    st.session_state.pop(OUTAGE, None)


def retry_now() -> None:
    """Let the next call try again at once, keeping since when the outage lasts."""
    outage = current_outage()
    if outage is not None:
        st.session_state[OUTAGE] = Outage(
            since=outage.since, last_tried_at=datetime.min.replace(tzinfo=UTC), detail=outage.detail
        )


def _call(call: Callable[[], T], now: datetime) -> T:
    outage = current_outage()
    if outage is not None and (now - outage.last_tried_at).total_seconds() < RETRY_AFTER_SECONDS:
        raise Unreachable(outage.detail)
    try:
        return call()
    except Unreachable as error:
        since = now if outage is None else outage.since
        st.session_state[OUTAGE] = Outage(since=since, last_tried_at=datetime.now(UTC), detail=str(error))
        raise
