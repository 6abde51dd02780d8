"""Audit: who changed what, when and why, before and after; and what was live at any moment."""

import json
from datetime import UTC, datetime, time

import streamlit as st

from app.formats import NOTHING, age, moment, short, words
from app.kept_data import fetch
from app.panels import guarded, panel, show_empty, show_freshness, show_table
from app.time_range import current_view
from controlplane.client import ControlPlaneClient
from controlplane.domain.alerts import AuditEvent

EVERYTHING = "all"


def render(client: ControlPlaneClient) -> None:
    """Draw the page; it holds still, so that one can read."""
    view = current_view()
    with panel("Changes", "Append-only, written in the same transaction as the change."):
        kept = fetch(
            client, f"audit/{view.range_name}", lambda: client.audit(view.since()), max_age_seconds=2
        )
        show_freshness(kept)
        events = _filtered(kept.value)
        if events:
            _show_events(events)
            _show_one(events)
        else:
            show_empty("Nothing was changed in this range. Widen it at the left.")
    with panel("What was live at"):
        _show_live(client)


def _filtered(events: tuple[AuditEvent, ...]) -> tuple[AuditEvent, ...]:
    if not events:
        return ()
    row = st.columns([1, 1, 2], vertical_alignment="bottom")
    actions = sorted({event.action for event in events})
    actors = sorted({event.actor for event in events})
    action = row[0].selectbox(
        "Action", [EVERYTHING, *actions], format_func=words, key="action", bind="query-params"
    )
    actor = row[1].selectbox("Who", [EVERYTHING, *actors], key="actor", bind="query-params")
    text = row[2].text_input("Search in reasons", key="reason_text", icon=":material/search:")
    return tuple(
        event
        for event in events
        if action in (EVERYTHING, event.action)
        and actor in (EVERYTHING, event.actor)
        and text.casefold() in event.reason.casefold()
    )


def _show_events(events: tuple[AuditEvent, ...]) -> None:
    show_table(
        "audit",
        {
            "at (UTC)": [moment(each.at) for each in events],
            "age": [age(each.at) for each in events],
            "who": [each.actor for each in events],
            "did": [words(each.action) for each in events],
            "to": [f"{words(each.resource)} {short(each.resource_id, 10)}" for each in events],
            "why": [each.reason for each in events],
            "before": [each.before or "" for each in events],
            "after": [each.after or "" for each in events],
            "request": [each.request_id for each in events],
        },
        height=380,
        hidden=("before", "after", "request"),
    )


def _show_one(events: tuple[AuditEvent, ...]) -> None:
    by_id = {event.id: event for event in events}
    chosen = st.selectbox(
        "Look at one", list(by_id), format_func=lambda each: _name(by_id[each]), key="event", width=460
    )
    rows = differences(by_id[chosen].before, by_id[chosen].after)
    if not rows:
        show_empty("This change left no difference on record.")
        return
    lines = [
        f"| {words(name)} | {before} | {f'**{after}**' if before != after else after} |"
        for name, before, after in rows
    ]
    st.markdown("\n".join(["| | before | after |", "|---|---|---|", *lines]))


def _name(event: AuditEvent) -> str:
    return f"{moment(event.at)} · {event.actor} · {words(event.action)}"


def differences(before: str | None, after: str | None) -> tuple[tuple[str, str, str], ...]:
    """Return field, before and after of a change, what differs first.

    Examples
    --------
    >>> differences('{"tau": 0.1, "policy": "eldr"}', '{"tau": 0.2, "policy": "eldr"}')
    (('tau', '0.1', '0.2'), ('policy', 'eldr', 'eldr'))
    """
    old, new = _fields(before), _fields(after)
    rows = [(name, old.get(name, NOTHING), new.get(name, NOTHING)) for name in dict.fromkeys([*old, *new])]
    return tuple(sorted(rows, key=lambda row: row[1] == row[2]))


def _fields(text: str | None) -> dict[str, str]:
    if text is None:
        return {}
    content = json.loads(text)
    if not isinstance(content, dict):
        return {"value": _plain(content)}
    return {str(name): _plain(value) for name, value in content.items()}


def _plain(value: object) -> str:
    if value is None:
        return NOTHING
    text = value if isinstance(value, str) else json.dumps(value)
    return (text if len(text) <= 60 else f"{text[:57]}…").replace("|", "\\|")


def _show_live(client: ControlPlaneClient) -> None:
    now = datetime.now(UTC)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        day = st.date_input("Day (UTC)", value=now.date(), key="live_day", max_value=now.date(), width=160)
        clock = st.time_input(
            "Time (UTC)", value=time(now.hour, now.minute), key="live_time", width=140, step=60
        )
    at = min(datetime.combine(day, clock, tzinfo=UTC), now)
    with guarded():
        live = client.live_at(at)
        if live.activation is None:
            active = "no version was active"
        else:
            who = f"{live.activation.actor}: {live.activation.reason}"
            active = f"**v{live.activation.version_number}** was active, put there by {who}"
        st.markdown(
            f"At {moment(live.at)} UTC {active}.  \nGeneration {live.generation}, policy "
            f"**{words(live.settings.policy)}**, tau **{live.settings.tau:g}** "
            f"(revision {live.settings.revision})."
        )
