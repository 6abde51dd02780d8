"""Versions: what there is, where each came from, how two differ; promote, reject, roll back."""

from functools import partial

import streamlit as st

from app.charts_control import lineage
from app.confirm import Change, Consent, Difference, ask
from app.formats import NOTHING, age, duration, moment, number, short, signed, words
from app.kept_data import Kept, fetch
from app.panels import guarded, panel, show_empty, show_freshness, show_table
from app.redraw import redraw_when_changed
from controlplane.client import ControlPlaneClient
from controlplane.domain.versions import (
    Activation,
    Promote,
    PromotionPreview,
    RollBack,
    Version,
    VersionState,
)

MARK = {
    VersionState.ACTIVE: "★ active",
    VersionState.CANDIDATE: "● candidate",
    VersionState.RETIRED: "■ retired",
    VersionState.REJECTED: "✕ rejected",
}
BARE = {"displayModeBar": False}


def render(client: ControlPlaneClient) -> None:
    """Draw the page."""
    with guarded():
        redraw_when_changed(lambda: [(each.id, each.state) for each in _versions(client).value])
        kept = _versions(client)
        show_freshness(kept)
        if not kept.value:
            with st.container(border=True):
                show_empty("No version yet. A calibration makes the first one.")
            return
        version = _show_levers(client, kept.value)
        _show_details(kept.value, version)
        with panel("Activations", "What was active when, and why."):
            _show_activations(client)


def _versions(client: ControlPlaneClient) -> Kept[tuple[Version, ...]]:
    return fetch(client, "versions", client.versions, max_age_seconds=2)


def _show_levers(client: ControlPlaneClient, versions: tuple[Version, ...]) -> Version:
    by_number = {version.number: version for version in versions}
    active = next((v for v in versions if v.state is VersionState.ACTIVE), None)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        chosen = st.selectbox(
            "Version",
            list(by_number),
            key="version",
            bind="query-params",
            width=140,
            format_func="v{}".format,  # stands in the address: no state, which changes
        )
        version = by_number[chosen]
        is_candidate = version.state is VersionState.CANDIDATE
        promote = st.button(
            f"Promote v{chosen}",
            type="primary",
            key="promote",
            icon=":material/rocket_launch:",
            disabled=not is_candidate,
        )
        reject = st.button("Reject", key="reject", icon=":material/block:", disabled=not is_candidate)
        roll_back = st.button("Roll back", key="roll_back", icon=":material/undo:", disabled=active is None)
        st.caption(MARK[version.state], width="content")
    if promote:
        ask(_promotion(client, client.preview_promotion(version.id)))
    if reject:
        ask(_rejection(client, version))
    if roll_back and active is not None:
        target = _rollback_target(client, versions, version, active)
        if target is None:
            st.warning("No earlier version to go back to.")
        else:
            ask(_rollback(client, active, target))
    return version


def _rollback_target(
    client: ControlPlaneClient, versions: tuple[Version, ...], chosen: Version, active: Version
) -> Version | None:
    """Return the chosen version where it is retired, else the one that was active before."""
    if chosen.state is VersionState.RETIRED:
        return chosen
    history = fetch(client, "activations", client.activations, max_age_seconds=2).value
    retired = {version.id: version for version in versions if version.state is VersionState.RETIRED}
    return next((retired[each.version_id] for each in history if each.version_id in retired), None)


def _promotion(client: ControlPlaneClient, preview: PromotionPreview) -> Change:
    version, replaces = preview.version, preview.replaces
    is_blocked = not preview.is_allowed
    return Change(
        title=f"Promote v{version.number}",
        verb=f"Promote v{version.number}",
        differences=_differences(replaces, version, preview.generation_after),
        act=partial(_promote, client, version),
        show_effect=partial(_show_preview, preview),
        override_label="Promote although the gate failed; the reason goes on record" if is_blocked else None,
        undo=None if replaces is None else _rollback(client, version, replaces, is_undo=True),
    )


def _differences(before: Version | None, after: Version, generation: int | None) -> tuple[Difference, ...]:
    rows = [
        Difference(
            what="active version",
            before="none" if before is None else f"v{before.number}",
            after=f"v{after.number}",
        ),
        Difference(
            what="held-out union",
            before=NOTHING if before is None else signed(before.held_out_percent),
            after=signed(after.held_out_percent),
        ),
        Difference(
            what="rho",
            before=NOTHING if before is None else number(before.rho, 2),
            after=number(after.rho, 2),
        ),
    ]
    if generation is not None:
        rows.append(Difference(what="generation", before=str(generation - 1), after=str(generation)))
    return tuple(rows)


def _show_preview(preview: PromotionPreview) -> None:
    change = preview.predicted_union_change_points
    if change is not None:
        effect = f"Active experts a step: **{signed(change, 2, 'points')}** against the active version."
    elif preview.replaces is None:
        effect = "The first version to be active: from load alone to routing by experts."
    else:
        effect = "Too little traffic with decode counts to predict it."
    st.markdown(effect)
    for check in preview.checks:
        icon = ":green[:material/check:]" if check.is_passed else ":red[:material/close:]"
        st.markdown(f"{icon} **{check.name}**: {check.detail}")


def _promote(client: ControlPlaneClient, version: Version, consent: Consent) -> str:
    command = Promote(reason=consent.reason, is_override=consent.is_override)
    done = client.promote(version.id, command, idempotency_key=consent.idempotency_key)
    return (
        f"**v{done.version_number} is active**, generation {done.generation}. Routers take it up within 2 s."
    )


def _rollback(
    client: ControlPlaneClient, active: Version, target: Version, *, is_undo: bool = False
) -> Change:
    back = None if is_undo else _rollback(client, target, active, is_undo=True)
    return Change(
        title=f"Roll back to v{target.number}",
        verb=f"Roll back to v{target.number}",
        differences=_differences(active, target, None),
        act=partial(_roll_back, client, target),
        show_effect=partial(_show_rollback, active, target),
        undo=back,
        suggested_reason=f"undo: back to v{target.number}" if is_undo else "",
    )


def _show_rollback(active: Version, target: Version) -> None:
    if active.held_out_percent is None or target.held_out_percent is None:
        st.markdown("Not known: one of the two was never measured on held-out requests.")
        return
    change = target.held_out_percent - active.held_out_percent
    st.markdown(
        f"Held-out active experts: **{signed(change, 1, 'points')}**, each as measured at its calibration."
    )


def _roll_back(client: ControlPlaneClient, target: Version, consent: Consent) -> str:
    command = RollBack(reason=consent.reason, version_id=target.id)
    done = client.roll_back(command, idempotency_key=consent.idempotency_key)
    return f"**Back on v{done.version_number}**, generation {done.generation}."


def _rejection(client: ControlPlaneClient, version: Version) -> Change:
    return Change(
        title=f"Reject v{version.number}",
        verb="Reject",
        differences=(Difference(what="state", before="candidate", after="rejected, for good"),),
        act=partial(_reject, client, version),
    )


def _reject(client: ControlPlaneClient, version: Version, consent: Consent) -> str:
    client.reject(version.id, consent.reason, idempotency_key=consent.idempotency_key)
    return f"v{version.number} is rejected."


def _show_details(versions: tuple[Version, ...], version: Version) -> None:
    left, right = st.columns([1.6, 1])
    with left, panel("All versions", is_tall=True):
        _show_versions(versions)
    with right, panel("Lineage", "A line leads from the version that another was fitted from."):
        st.plotly_chart(lineage(versions), key="lineage", config=BARE)
    with panel(f"v{version.number} beside another"):
        _show_comparison(versions, version)


def _show_versions(versions: tuple[Version, ...]) -> None:
    show_table(
        "versions",
        {
            "version": [f"v{each.number}" for each in versions],
            "state": [MARK[each.state] for each in versions],
            "held-out union": [signed(each.held_out_percent) for each in versions],
            "rho": [number(each.rho, 2) for each in versions],
            "origin": [words(each.origin) for each in versions],
            "requests": [each.n_requests for each in versions],
            "made (UTC)": [moment(each.created_at) for each in versions],
            "hash": [short(each.content_hash) for each in versions],
        },
        height=280,
    )


def _show_comparison(versions: tuple[Version, ...], version: Version) -> None:
    others = {each.number: each for each in versions if each.id != version.id}
    if not others:
        show_empty("There is no other version.")
        return
    active = next((each.number for each in others.values() if each.state is VersionState.ACTIVE), None)
    numbers = list(others)
    index = 0 if active is None else numbers.index(active)
    number_chosen = st.selectbox(
        "Beside", numbers, index=index, key="beside", format_func="v{}".format, width=160, bind="query-params"
    )
    other = others[number_chosen]
    left, right = _facts(version), _facts(other)
    names = list(dict.fromkeys([*left, *right]))
    show_table(
        "comparison",
        {
            "": names,
            f"v{version.number}": [left.get(name, NOTHING) for name in names],
            f"v{other.number}": [right.get(name, NOTHING) for name in names],
            "differs": ["≠" if left.get(name) != right.get(name) else "" for name in names],
        },
    )


def _facts(version: Version) -> dict[str, str]:
    facts = {
        "state": version.state.value,
        "origin": words(version.origin),
        "made from": short(version.parent_hash),
        "transform": words(version.transform),
        "centroids": str(version.n_centroids),
        "layers kept": str(version.n_layers_kept),
        "requests": f"{version.n_requests:,}",
        "held-out union": signed(version.held_out_percent),
        "rho": number(version.rho, 3),
    }
    metrics = {
        words(name.removeprefix("n_")): f"{value:.4g}" for name, value in sorted(version.metrics.items())
    }
    return facts | {name: text for name, text in metrics.items() if name not in facts}


def _show_activations(client: ControlPlaneClient) -> None:
    kept = fetch(client, "activations", client.activations, max_age_seconds=2)
    show_freshness(kept)
    rows = kept.value
    if not rows:
        show_empty("Nothing was promoted yet.")
        return
    show_table(
        "activations",
        {
            "version": [f"v{each.version_number}" for each in rows],
            "how": [words(each.kind.value) + (" (override)" if each.is_override else "") for each in rows],
            "from (UTC)": [moment(each.at) for each in rows],
            "for": [_lasted(each) for each in rows],
            "generation": [each.generation for each in rows],
            "who": [each.actor for each in rows],
            "why": [each.reason for each in rows],
        },
        height=300,
    )


def _lasted(activation: Activation) -> str:
    if activation.until is None:
        return f"{age(activation.at).removesuffix(' ago')}, live"
    return duration((activation.until - activation.at).total_seconds())
