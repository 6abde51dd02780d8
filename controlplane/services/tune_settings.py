"""Change the live knobs: each change is a revision and a new generation, and may revert by itself."""

from collections.abc import Callable
from datetime import timedelta

from controlplane.domain.limits import check_between
from controlplane.domain.pages import Page, to_page
from controlplane.domain.routing_settings import Knobs
from controlplane.domain.versions import RoutingSettings, Tune
from controlplane.errors import Conflict
from controlplane.services.keep_version import number_of
from controlplane.services.manage_fleets import get_fleet, lock_fleet
from controlplane.services.record_change import Change
from controlplane.storage.database import ReadSession
from controlplane.storage.models.versions import SettingsRevisionRow
from controlplane.storage.repositories import fleets, running_experiments, settings_revisions

SHORTEST_REVERT_SECONDS = 5.0
LONGEST_REVERT_SECONDS = 7 * 86_400.0


def get_settings(session: ReadSession, fleet: str) -> RoutingSettings:
    """Find the live settings."""
    get_fleet(session, fleet)
    return settings_revisions.to_settings(settings_revisions.current_revision(session, fleet))


def apply_command(before: RoutingSettings, command: Tune) -> Knobs:
    """Work out the knobs after a command; a field left out keeps its value, a load cap of 0 is none."""
    if command.auto_revert_seconds is not None:
        check_between(
            "auto_revert_seconds",
            command.auto_revert_seconds,
            SHORTEST_REVERT_SECONDS,
            LONGEST_REVERT_SECONDS,
        )
    load_cap = before.load_cap if command.load_cap is None else command.load_cap
    return Knobs(
        policy=before.policy if command.policy is None else command.policy,
        tau=before.tau if command.tau is None else command.tau,
        load_cap=None if load_cap == 0 else load_cap,
        control_share=before.control_share if command.control_share is None else command.control_share,
    )


def tune_settings(
    change: Change, fleet: str, command: Tune, check_current: Callable[[RoutingSettings], None]
) -> RoutingSettings:
    """Make a new revision live. `check_current` refuses the change if it was meant for another revision."""
    lock_fleet(change.session, fleet)
    current_row = settings_revisions.current_revision(change.session, fleet)
    current = settings_revisions.to_settings(current_row)
    check_current(current)
    running = running_experiments.find_running(change.session, fleet)
    if running is not None:
        raise Conflict(
            f"experiment {running.id} runs until {running.ends_at.isoformat()}, and its arms must not change "
            "under it: stop it first"
        )
    row = _revision(change, current, apply_command(current, command), command.reason)
    if command.auto_revert_seconds is not None:
        row.revert_at = change.now + timedelta(seconds=command.auto_revert_seconds)
        row.revert_to = current.revision
    return _make_live(change, fleet, current, row)


def revert_due_settings(change: Change) -> list[RoutingSettings]:
    """Revert the settings whose time has come, for every fleet; called by a tick each second."""
    reverted = []
    for due in settings_revisions.due_reverts(change.session, change.now):
        lock_fleet(change.session, due.fleet)
        current = settings_revisions.current_revision(change.session, due.fleet)
        if current.revision == due.revision:  # a later change by a person stays
            reverted.append(_revert(change, current))
    return reverted


def list_revisions(session: ReadSession, fleet: str, cursor: str | None, limit: int) -> Page[RoutingSettings]:
    """List revisions, newest first."""
    get_fleet(session, fleet)
    found = settings_revisions.list_revisions(session, fleet, before=number_of(cursor), limit=limit + 1)
    return to_page(found, limit, lambda settings: str(settings.revision))


def _revert(change: Change, current_row: SettingsRevisionRow) -> RoutingSettings:
    current = settings_revisions.to_settings(current_row)
    target = current_row
    while target.revert_at is not None and target.revert_at <= change.now:
        assert target.revert_to is not None, "a revision that reverts says to which one"
        target = settings_revisions.get_revision(change.session, current_row.fleet, target.revert_to)
    knobs = Knobs(
        policy=target.policy, tau=target.tau, load_cap=target.load_cap, control_share=target.control_share
    )
    reason = f"revision {current.revision} reverts to revision {target.revision} after its time"
    row = _revision(change, current, knobs, reason)
    row.revert_at, row.revert_to = target.revert_at, target.revert_to
    return _make_live(change, current_row.fleet, current, row)


def _revision(change: Change, current: RoutingSettings, knobs: Knobs, reason: str) -> SettingsRevisionRow:
    return SettingsRevisionRow(
        revision=current.revision + 1,
        policy=knobs.policy,
        tau=knobs.tau,
        load_cap=knobs.load_cap,
        control_share=knobs.control_share,
        changed_at=change.now,
        changed_by=change.actor,
        reason=reason,
    )


def _make_live(
    change: Change, fleet: str, before: RoutingSettings, row: SettingsRevisionRow
) -> RoutingSettings:
    row.fleet = fleet
    cause = f"settings revision {row.revision}"
    row.generation = fleets.next_generation(change.session, fleet, cause=cause, now=change.now)
    settings_revisions.add_revision(change.session, row)
    after = settings_revisions.to_settings(row)
    change.audit(
        action="tune",
        resource="settings",
        resource_id=str(row.revision),
        fleet=fleet,
        reason=row.reason,
        before=before,
        after=after,
    )
    return after
