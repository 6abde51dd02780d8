"""Trace packs and their bytes."""

import zlib

from sqlalchemy import select

from controlplane.domain.calibrations import TracePack
from controlplane.storage.database import ReadSession, WriteSession
from controlplane.storage.models.calibrations import TracePackBlobRow, TracePackRow

# Counts are mostly zeros: level 1 takes a third of the time of 6 and gives up a few percent.
COMPRESSION_LEVEL = 1


def add_pack(session: WriteSession, row: TracePackRow, data: bytes) -> None:
    """Add a pack with its bytes, which are stored compressed."""
    session.add(row)
    session.flush()
    session.add(TracePackBlobRow(trace_pack_id=row.id, data=zlib.compress(data, COMPRESSION_LEVEL)))
    session.flush()


def find_pack(session: ReadSession, fleet: str, pack_id: str) -> TracePackRow | None:
    """Find a pack of a fleet by its id."""
    row = session.get(TracePackRow, pack_id)
    return row if row is not None and row.fleet == fleet else None


def find_by_hash(session: ReadSession, fleet: str, content_hash: str) -> TracePackRow | None:
    """Find a pack of a fleet by what it contains."""
    statement = select(TracePackRow).where(
        TracePackRow.fleet == fleet, TracePackRow.content_hash == content_hash
    )
    return session.scalars(statement).one_or_none()


def find_newest_with_decode(
    session: ReadSession, fleet: str, *, other_than: str | None = None
) -> TracePackRow | None:
    """Find the newest pack of a fleet that has decode counts."""
    statement = select(TracePackRow).where(TracePackRow.fleet == fleet, TracePackRow.has_decode)
    if other_than is not None:
        statement = statement.where(TracePackRow.id != other_than)
    return session.scalars(statement.order_by(TracePackRow.id.desc()).limit(1)).one_or_none()


def read_pack(session: ReadSession, pack_id: str) -> bytes:
    """Read the safetensors bytes of a pack."""
    statement = select(TracePackBlobRow.data).where(TracePackBlobRow.trace_pack_id == pack_id)
    return zlib.decompress(session.scalars(statement).one())


def list_packs(session: ReadSession, fleet: str, *, before_id: str | None, limit: int) -> list[TracePack]:
    """List packs of a fleet, newest first."""
    statement = select(TracePackRow).where(TracePackRow.fleet == fleet)
    if before_id is not None:
        statement = statement.where(TracePackRow.id < before_id)
    return [to_pack(row) for row in session.scalars(statement.order_by(TracePackRow.id.desc()).limit(limit))]


def to_pack(row: TracePackRow) -> TracePack:
    """Value of a row."""
    return TracePack(
        id=row.id,
        fleet=row.fleet,
        name=row.name,
        origin=row.origin,
        n_requests=row.n_requests,
        has_decode=row.has_decode,
        size_bytes=row.size_bytes,
        content_hash=row.content_hash,
        created_at=row.created_at,
        created_by=row.created_by,
    )
