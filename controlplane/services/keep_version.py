"""Store a centroid version as a candidate, and find stored ones."""

from controlplane.domain.pages import Page, to_page
from controlplane.domain.promotion_gate import GateComparison
from controlplane.domain.versions import RejectVersion, Version, VersionState
from controlplane.errors import Conflict, InvalidField, NotFound
from controlplane.services.manage_fleets import get_fleet, lock_fleet
from controlplane.services.record_change import Change
from controlplane.storage.database import ReadSession
from controlplane.storage.models.fleets import FleetRow
from controlplane.storage.models.metadata import new_id
from controlplane.storage.models.versions import VersionRow
from controlplane.storage.repositories import versions
from eldr_runtime.centroid_version import CentroidVersion, from_bytes, to_bytes
from eldr_runtime.errors import ModelMismatch
from eldr_runtime.model_shape import ModelShape


def upload_version(change: Change, fleet: str, data: bytes, reason: str) -> Version:
    """Check an uploaded artifact and store it as a candidate."""
    shape = shape_of(get_fleet(change.session, fleet))
    return keep_version(change, fleet, from_bytes(data, expected_shape=shape), reason=reason)


def keep_version(
    change: Change,
    fleet: str,
    version: CentroidVersion,
    *,
    reason: str,
    calibration_run_id: str | None = None,
    held_out_percent: float | None = None,
    rho: float | None = None,
    comparisons: tuple[GateComparison, ...] = (),
    state: VersionState = VersionState.CANDIDATE,
) -> Version:
    """Store a version under the fleet's next number.

    `held_out_percent` and `rho` are of its calibration's report; `state` may be REJECTED for one that failed
    its gate.
    """
    fleet_row = lock_fleet(change.session, fleet)
    if version.shape != shape_of(fleet_row):
        raise ModelMismatch(
            f"the version is for {version.shape}; fleet {fleet!r} serves {shape_of(fleet_row)}"
        )
    same = versions.find_by_hash(change.session, fleet, version.content_hash)
    if same is not None:
        raise Conflict(f"version {same.number} of fleet {fleet!r} has the same content, {same.content_hash}")
    row = _to_row(change, fleet, version, calibration_run_id, state)
    row.held_out_percent, row.rho = held_out_percent, rho
    row.number = versions.next_number(change.session, fleet)
    versions.write_gate(row, comparisons)
    versions.add_version(change.session, row, to_bytes(version), change.now)
    kept = versions.to_version(row)
    change.audit(
        action="create", resource="version", resource_id=row.id, fleet=fleet, reason=reason, after=kept
    )
    return kept


def reject_version(change: Change, fleet: str, version_id: str, command: RejectVersion) -> Version:
    """Rule a candidate out for good."""
    lock_fleet(change.session, fleet)
    row = get_version(change.session, fleet, version_id)
    if row.state != VersionState.CANDIDATE:
        raise Conflict(f"version {row.number} is {row.state}; only a candidate can be rejected")
    before = versions.to_version(row)
    row.state = VersionState.REJECTED
    after = versions.to_version(row)
    change.audit(
        action="reject",
        resource="version",
        resource_id=version_id,
        fleet=fleet,
        reason=command.reason,
        before=before,
        after=after,
    )
    return after


def get_version(session: ReadSession, fleet: str, version_id: str) -> VersionRow:
    """Find a version, or refuse the request."""
    get_fleet(session, fleet)
    row = versions.find_version(session, fleet, version_id)
    if row is None:
        raise NotFound(resource="version", name=version_id)
    return row


def get_artifact(session: ReadSession, fleet: str, content_hash: str) -> bytes:
    """Find the bytes of a version of this fleet, or refuse the request."""
    get_fleet(session, fleet)
    data = None
    if versions.find_by_hash(session, fleet, content_hash) is not None:
        data = versions.find_artifact(session, content_hash)
    if data is None:
        raise NotFound(resource="artifact", name=content_hash)
    return data


def load_version(session: ReadSession, row: VersionRow) -> CentroidVersion:
    """Read and verify the artifact of a stored version."""
    data = versions.find_artifact(session, row.content_hash)
    if data is None:
        raise NotFound(resource="artifact", name=row.content_hash)
    return from_bytes(data, expected_hash=row.content_hash)


def list_versions(session: ReadSession, fleet: str, cursor: str | None, limit: int) -> Page[Version]:
    """List versions, newest first."""
    get_fleet(session, fleet)
    found = versions.list_versions(session, fleet, before=number_of(cursor), limit=limit + 1)
    return to_page(found, limit, lambda version: str(version.number))


def number_of(cursor: str | None) -> int | None:
    """Read a cursor that is a number."""
    if cursor is not None and not (cursor.isascii() and cursor.isdigit() and len(cursor) < 18):
        raise InvalidField(field="cursor", value=cursor, limit="the next_cursor of a page")
    return None if cursor is None else int(cursor)


def shape_of(row: FleetRow) -> ModelShape:
    """Shape of the model a fleet serves."""
    return ModelShape(model=row.model, n_layers=row.n_layers, n_experts=row.n_experts, top_k=row.top_k)


def _to_row(
    change: Change, fleet: str, version: CentroidVersion, run_id: str | None, state: VersionState
) -> VersionRow:
    metrics = {name: value for name, value in version.metrics if isinstance(value, float)}
    return VersionRow(
        id=new_id(),
        fleet=fleet,
        content_hash=version.content_hash,
        parent_hash=version.parent_hash,
        origin=version.origin,
        state=state,
        transform=version.transform.name,
        n_centroids=version.n_centroids,
        n_layers_kept=int(version.transform.layer_mask.sum()),
        n_requests=version.n_requests,
        metrics=metrics,
        calibration_run_id=run_id,
        created_at=change.now,
        created_by=change.actor,
    )
