"""Make and find fleets."""

from controlplane.domain.fleets import CreateFleet, Fleet
from controlplane.domain.pages import Page, to_page
from controlplane.domain.routing_settings import FIRST_SETTINGS
from controlplane.errors import Conflict, NotFound
from controlplane.services.record_change import Change
from controlplane.storage.database import ReadSession, WriteSession
from controlplane.storage.models.fleets import FleetRow
from controlplane.storage.models.versions import SettingsRevisionRow
from controlplane.storage.repositories import fleets, settings_revisions

FIRST_GENERATION = 1


def make_fleet(change: Change, command: CreateFleet) -> Fleet:
    """Make a fleet with its first routing settings and generation 1."""
    session = change.session
    if fleets.find_fleet(session, command.name) is not None:
        raise Conflict(f"there is a fleet {command.name!r} already")
    row = FleetRow(
        name=command.name,
        model=command.shape.model,
        n_layers=command.shape.n_layers,
        n_experts=command.shape.n_experts,
        top_k=command.shape.top_k,
        gpu=command.gpu,
        latency_preset=command.latency_preset,
        kv_block_size_tokens=command.kv_block_size_tokens,
        decode_profile_share=command.decode_profile_share,
        signature_sample_share=command.signature_sample_share,
        metrics_window_seconds=command.metrics_window_seconds,
        retention_days=command.retention_days,
        is_simulated=command.is_simulated,
        revision=1,
        generation=FIRST_GENERATION,
        created_at=change.now,
    )
    fleets.add_fleet(session, row, change.now)
    settings_revisions.add_revision(session, _first_revision(change, command))
    fleet = fleets.to_fleet(row)
    change.audit(
        action="create",
        resource="fleet",
        resource_id=fleet.name,
        fleet=fleet.name,
        reason=command.reason,
        after=fleet,
    )
    return fleet


def get_fleet(session: ReadSession, name: str) -> FleetRow:
    """Find a fleet, or refuse the request."""
    row = fleets.find_fleet(session, name)
    if row is None:
        raise NotFound(resource="fleet", name=name)
    return row


def lock_fleet(session: WriteSession, name: str) -> FleetRow:
    """Find a fleet and have other changes of it wait, or refuse the request."""
    row = fleets.lock_fleet(session, name)
    if row is None:
        raise NotFound(resource="fleet", name=name)
    return row


def list_fleets(session: ReadSession, cursor: str | None, limit: int) -> Page[Fleet]:
    """List fleets by name."""
    found = fleets.list_fleets(session, after=cursor, limit=limit + 1)
    return to_page(found, limit, lambda fleet: fleet.name)


def _first_revision(change: Change, command: CreateFleet) -> SettingsRevisionRow:
    return SettingsRevisionRow(
        fleet=command.name,
        revision=1,
        generation=FIRST_GENERATION,
        policy=FIRST_SETTINGS.policy,
        tau=FIRST_SETTINGS.tau,
        load_cap=FIRST_SETTINGS.load_cap,
        control_share=FIRST_SETTINGS.control_share,
        changed_at=change.now,
        changed_by=change.actor,
        reason=command.reason,
    )
