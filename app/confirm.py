"""A change is looked at before it is made: its diff, its predicted effect, a reason; and Undo after."""

from collections.abc import Callable
from dataclasses import dataclass
from uuid import uuid4

import streamlit as st

from app.kept_data import forget
from app.panels import show_error
from controlplane.client import ControlPlaneClient
from controlplane.client_transport import ClientError, Stale

NOTICE = "change_notice"
PENDING = "change_pending"
KEY = "change_key"
IN_FLIGHT = "change_in_flight"
FAILURE = "change_failure"
REASON = "change_reason"
OVERRIDE = "change_override"


@dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    """What the operator gave: a reason, and a key that makes sending it twice harmless."""

    reason: str
    idempotency_key: str
    is_override: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One line of a diff."""

    what: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change to be confirmed.

    Attributes
    ----------
    act
        Makes the change and returns what to tell the operator.
    show_effect
        Draws the predicted effect.
    override_label
        Where a gate failed: what the operator has to tick; None where nothing stands in the way.
    undo
        The change that takes this one back; None where there is none, and the dialog says so.
    """

    title: str
    verb: str
    differences: tuple[Difference, ...]
    act: Callable[[Consent], str]
    show_effect: Callable[[], object] | None = None
    override_label: str | None = None
    undo: "Change | None" = None
    suggested_reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """What was done, and how to take it back."""

    text: str
    undo: Change | None


def ask(change: Change) -> None:
    """Have a change confirmed: its dialog opens at the end of this run, and stays until it is settled."""
    st.session_state[KEY] = uuid4().hex
    st.session_state[IN_FLIGHT] = False
    st.session_state.pop(FAILURE, None)
    st.session_state[REASON] = change.suggested_reason
    st.session_state[OVERRIDE] = False
    st.session_state[PENDING] = change


def show_notice(client: ControlPlaneClient) -> None:
    """Tell what the last change did, with Undo."""
    notice: Notice | None = st.session_state.get(NOTICE)
    if notice is None:
        return
    with st.container(border=True, horizontal=True, vertical_alignment="center", key="notice"):
        st.markdown(f":material/check_circle: {notice.text}", width="stretch")
        is_undone = notice.undo is not None and st.button("Undo", icon=":material/undo:", key="undo")
        if st.button("Dismiss", type="tertiary", key="dismiss_notice"):
            del st.session_state[NOTICE]
            st.rerun()
    if is_undone and notice.undo is not None:
        ask(notice.undo)


def show_pending(client: ControlPlaneClient) -> None:
    """Open the dialog of the change that waits for consent; called once, at the end of a run."""
    change: Change | None = st.session_state.get(PENDING)
    if change is not None:
        st.dialog(change.title, width="medium", on_dismiss=_put_aside)(_show_dialog)(client, change)


def _put_aside() -> None:
    st.session_state.pop(PENDING, None)


def _show_dialog(client: ControlPlaneClient, change: Change) -> None:
    _show_differences(change.differences)
    if change.show_effect is not None:
        st.markdown("**Predicted effect**")
        change.show_effect()
    is_held = change.override_label is not None and not st.checkbox(change.override_label, key=OVERRIDE)
    reason = st.text_input(
        "Reason (kept in the audit log)",
        key=REASON,
        max_chars=1000,
        live=True,
        placeholder="Why now? A ticket, an alert, an observation.",
    )
    if change.undo is None:
        st.caption("This cannot be undone from here.")
    is_in_flight = bool(st.session_state[IN_FLIGHT])
    st.button(
        "Working…" if is_in_flight else change.verb,
        type="primary",
        key="confirm_change",
        disabled=is_in_flight or is_held or not reason.strip(),
        on_click=_take_off,
    )
    failure: ClientError | None = st.session_state.get(FAILURE)
    if failure is not None:
        _show_failure(failure)
    if is_in_flight:
        _make(client, change, reason.strip())


def _take_off() -> None:
    st.session_state[IN_FLIGHT] = True
    st.session_state.pop(FAILURE, None)


def _make(client: ControlPlaneClient, change: Change, reason: str) -> None:
    consent = Consent(
        reason=reason,
        idempotency_key=st.session_state[KEY],
        is_override=bool(st.session_state.get(OVERRIDE, False)),
    )
    st.session_state[IN_FLIGHT] = False
    try:
        text = change.act(consent)
    except ClientError as error:
        st.session_state[FAILURE] = error
    else:
        _put_aside()
        st.session_state[NOTICE] = Notice(text=text, undo=change.undo)
        forget(client)
    st.rerun()  # also after a failure: the button was drawn as taken


def _show_failure(failure: ClientError) -> None:
    if isinstance(failure, Stale):
        st.error(f"Somebody changed this first; close, look again, and decide anew. {failure.problem.detail}")
        return
    show_error(failure)
    st.caption("Nothing is known to have changed. Sending it again is safe: it carries the same key.")


def _show_differences(differences: tuple[Difference, ...]) -> None:
    rows = [f"| {each.what} | {each.before} | **{each.after}** |" for each in differences]
    st.markdown("\n".join(["| | now | after |", "|---|---|---|", *rows]))
