"""Promote a version or roll back to one: version states, activation, generation, audit in one transaction."""

from controlplane.domain.promotion_gate import check_state, check_union, is_allowed
from controlplane.domain.rollback import choose_rollback_target
from controlplane.domain.versions import (
    Activation,
    ActivationKind,
    GateCheck,
    Promote,
    PromotionPreview,
    RollBack,
    VersionState,
)
from controlplane.errors import Conflict
from controlplane.services.keep_version import get_version, load_version, shape_of
from controlplane.services.manage_fleets import get_fleet, lock_fleet
from controlplane.services.record_change import Change
from controlplane.services.run_experiment import stop_running
from controlplane.storage.database import ReadSession
from controlplane.storage.models.metadata import new_id
from controlplane.storage.models.versions import ActivationRow, VersionRow
from controlplane.storage.repositories import activations, fleets, running_experiments, versions
from eldr_runtime.errors import EldrError

# How far back the default target of a rollback is looked for.
MAX_HISTORY = 200


def preview_promotion(
    session: ReadSession, fleet: str, version_id: str, *, is_override: bool
) -> PromotionPreview:
    """Tell what a promotion would do and whether it is allowed, and change nothing."""
    row = get_version(session, fleet, version_id)
    active = versions.find_active(session, fleet)
    checks = _checks(session, fleet, row, active)
    comparisons = [c for c in versions.read_gate(row) if active and c.other_hash == active.content_hash]
    return PromotionPreview(
        version=versions.to_version(row),
        replaces=None if active is None else versions.to_version(active),
        checks=checks,
        is_allowed=is_allowed(checks, is_override=is_override),
        predicted_union_change_points=comparisons[-1].mean_points if comparisons else None,
        generation_after=get_fleet(session, fleet).generation + 1,
    )


def promote_version(change: Change, fleet: str, version_id: str, command: Promote) -> Activation:
    """Make a candidate the active version, if its gate passes or is overridden with a reason."""
    lock_fleet(change.session, fleet)
    _refuse_during_experiment(change.session, fleet)
    row = get_version(change.session, fleet, version_id)
    checks = _checks(change.session, fleet, row, versions.find_active(change.session, fleet))
    if not is_allowed(checks, is_override=command.is_override):
        failed = "; ".join(f"{check.name}: {check.detail}" for check in checks if not check.is_passed)
        raise Conflict(f"version {row.number} does not pass its gate: {failed}")
    return _activate(
        change,
        fleet,
        row,
        kind=ActivationKind.PROMOTE,
        reason=command.reason,
        is_override=command.is_override,
    )


def roll_back(change: Change, fleet: str, command: RollBack) -> Activation:
    """Go back to a version that was active before; a running experiment ends, since its arm is gone."""
    lock_fleet(change.session, fleet)
    row = find_rollback_target(change.session, fleet, command.version_id)
    stop_running(change, fleet, command.reason)
    return _activate(
        change, fleet, row, kind=ActivationKind.ROLL_BACK, reason=command.reason, is_override=False
    )


def preview_rollback(session: ReadSession, fleet: str, version_id: str | None) -> PromotionPreview:
    """Tell what a rollback would do, and change nothing."""
    row = find_rollback_target(session, fleet, version_id)
    active = versions.find_active(session, fleet)
    checks = (_artifact_check(session, fleet, row),)
    return PromotionPreview(
        version=versions.to_version(row),
        replaces=None if active is None else versions.to_version(active),
        checks=checks,
        is_allowed=is_allowed(checks, is_override=False),
        predicted_union_change_points=None,
        generation_after=get_fleet(session, fleet).generation + 1,
    )


def find_rollback_target(session: ReadSession, fleet: str, version_id: str | None) -> VersionRow:
    """Find the version to go back to, or refuse and say why."""
    get_fleet(session, fleet)
    active = versions.find_active(session, fleet)
    if active is None:
        raise Conflict(f"fleet {fleet!r} has no active version to roll back from")
    if version_id is None:
        history = activations.list_activations(session, fleet, limit=MAX_HISTORY)
        version_id = choose_rollback_target(history)
        if version_id is None:
            raise Conflict(
                f"no version was active before version {active.number} that was not rolled back from; "
                "name one in version_id"
            )
    row = get_version(session, fleet, version_id)
    if row.id == active.id:
        raise Conflict(f"version {row.number} is active already")
    if row.state != VersionState.RETIRED:
        raise Conflict(f"version {row.number} is {row.state} and was never active: promote it instead")
    check = _artifact_check(session, fleet, row)
    if not check.is_passed:
        raise Conflict(f"version {row.number} cannot be used: {check.detail}")
    return row


def _activate(
    change: Change, fleet: str, row: VersionRow, *, kind: ActivationKind, reason: str, is_override: bool
) -> Activation:
    session = change.session
    active = versions.find_active(session, fleet)
    before = activations.activation_at(session, fleet, change.now)
    if active is not None:
        active.state = VersionState.RETIRED
        session.flush()  # before the next one is active: there is one at most, also within the transaction
    row.state = VersionState.ACTIVE
    generation = fleets.next_generation(session, fleet, cause=f"{kind} version {row.number}", now=change.now)
    activation_row = ActivationRow(
        id=new_id(),
        fleet=fleet,
        kind=kind,
        version_id=row.id,
        actor=change.actor,
        reason=reason,
        is_override=is_override,
        generation=generation,
        at=change.now,
        until=None,
    )
    activations.add_activation(session, activation_row)
    activation = activations.to_activation(activation_row, row.number)
    change.audit(
        action=kind, resource="version", resource_id=row.id, fleet=fleet, reason=reason, before=before,
        after=activation,
    )  # fmt: skip
    return activation


def _checks(
    session: ReadSession, fleet: str, row: VersionRow, active: VersionRow | None
) -> tuple[GateCheck, ...]:
    union = check_union(None if active is None else active.content_hash, versions.read_gate(row))
    return (check_state(VersionState(row.state)), _artifact_check(session, fleet, row), union)


def _artifact_check(session: ReadSession, fleet: str, row: VersionRow) -> GateCheck:
    """Check that the stored bytes are what their hash says and made for the fleet's model."""
    try:
        version = load_version(session, row)
    except EldrError as error:
        return GateCheck(name="artifact", is_passed=False, detail=str(error))
    shape = shape_of(get_fleet(session, fleet))
    if version.shape != shape:
        return GateCheck(name="artifact", is_passed=False, detail=f"made for {version.shape}, not {shape}")
    detail = f"content hash {row.content_hash[:12]} verified, made for {shape.model}"
    return GateCheck(name="artifact", is_passed=True, detail=detail)


def _refuse_during_experiment(session: ReadSession, fleet: str) -> None:
    running = running_experiments.find_running(session, fleet)
    if running is not None:
        raise Conflict(
            f"experiment {running.id} runs until {running.ends_at.isoformat()}, and its arms must not change "
            "under it: stop it first"
        )
