"""Centroid versions and their artifacts."""

import json
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import func, select

from controlplane.domain.promotion_gate import GateComparison
from controlplane.domain.versions import Version, VersionState
from controlplane.storage.database import ReadSession, WriteSession
from controlplane.storage.models.versions import ArtifactRow, VersionRow
from eldr_runtime.json_values import from_json_value, to_json_value


def find_version(session: ReadSession, fleet: str, version_id: str) -> VersionRow | None:
    """Find a version of a fleet by its id."""
    row = session.get(VersionRow, version_id)
    return row if row is not None and row.fleet == fleet else None


def find_by_hash(session: ReadSession, fleet: str, content_hash: str) -> VersionRow | None:
    """Find a version of a fleet by what it contains."""
    statement = select(VersionRow).where(VersionRow.fleet == fleet, VersionRow.content_hash == content_hash)
    return session.scalars(statement).one_or_none()


def find_active(session: ReadSession, fleet: str) -> VersionRow | None:
    """Find the active version of a fleet."""
    statement = select(VersionRow).where(VersionRow.fleet == fleet, VersionRow.state == VersionState.ACTIVE)
    return session.scalars(statement).one_or_none()


def list_versions(session: ReadSession, fleet: str, *, before: int | None, limit: int) -> list[Version]:
    """List versions of a fleet, newest first."""
    statement = select(VersionRow).where(VersionRow.fleet == fleet)
    if before is not None:
        statement = statement.where(VersionRow.number < before)
    rows = session.scalars(statement.order_by(VersionRow.number.desc()).limit(limit))
    return [to_version(row) for row in rows]


def next_number(session: WriteSession, fleet: str) -> int:
    """Find the number of the next version of a fleet, whose row the caller has locked."""
    statement = select(func.max(VersionRow.number)).where(VersionRow.fleet == fleet)
    return (session.scalars(statement).one() or 0) + 1


def add_version(session: WriteSession, row: VersionRow, data: bytes, now: datetime) -> None:
    """Add a version, and its artifact where no other fleet has the same."""
    if session.get(ArtifactRow, row.content_hash) is None:
        session.add(ArtifactRow(content_hash=row.content_hash, data=data, created_at=now))
        session.flush()
    session.add(row)
    session.flush()


def find_artifact(session: ReadSession, content_hash: str) -> bytes | None:
    """Find the bytes of an artifact."""
    statement = select(ArtifactRow.data).where(ArtifactRow.content_hash == content_hash)
    return session.scalars(statement).one_or_none()


def read_gate(row: VersionRow) -> tuple[GateComparison, ...]:
    """Read the comparisons stored with a version."""
    return tuple(
        from_json_value(GateComparison, value, path=f"$[{index}]")
        for index, value in enumerate(json.loads(row.gate))
    )


def write_gate(row: VersionRow, comparisons: Sequence[GateComparison]) -> None:
    """Store the comparisons of a version."""
    row.gate = json.dumps([to_json_value(comparison) for comparison in comparisons], sort_keys=True)


def to_version(row: VersionRow) -> Version:
    """Value of a row."""
    return Version(
        id=row.id,
        number=row.number,
        fleet=row.fleet,
        content_hash=row.content_hash,
        parent_hash=row.parent_hash,
        origin=row.origin,
        state=VersionState(row.state),
        transform=row.transform,
        n_centroids=row.n_centroids,
        n_layers_kept=row.n_layers_kept,
        n_requests=row.n_requests,
        held_out_percent=row.held_out_percent,
        rho=row.rho,
        metrics=row.metrics,
        calibration_run_id=row.calibration_run_id,
        created_at=row.created_at,
    )
