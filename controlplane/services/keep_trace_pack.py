"""Store trace packs, and find stored ones."""

from pathlib import Path

from controlplane.domain.calibrations import TracePack
from controlplane.domain.limits import check_length
from controlplane.domain.pages import Page, to_page
from controlplane.errors import Conflict, NotFound
from controlplane.services.keep_version import shape_of
from controlplane.services.manage_fleets import get_fleet
from controlplane.services.record_change import Change
from controlplane.storage.database import ReadSession
from controlplane.storage.models.calibrations import TracePackRow
from controlplane.storage.models.metadata import new_id
from controlplane.storage.repositories import trace_packs
from eldr_runtime.errors import ModelMismatch
from eldr_runtime.expert_trace import ExpertTrace
from eldr_runtime.trace_files import load_trace

UPLOADED = "upload"
LONGEST_NAME = 100


def read_upload(path: Path) -> ExpertTrace:
    """Check an uploaded pack and read it; done before the transaction, since a large one takes a while."""
    return load_trace(path)


def keep_trace_pack(
    change: Change,
    fleet: str,
    trace: ExpertTrace,
    data: bytes,
    *,
    content_hash: str,
    name: str,
    reason: str,
    origin: str = UPLOADED,
) -> TracePack:
    """Store a pack that has been read; `content_hash` is the SHA-256 of `data`."""
    check_length("name", name, LONGEST_NAME)
    shape = shape_of(get_fleet(change.session, fleet))
    if trace.shape != shape:
        raise ModelMismatch(f"the trace is of {trace.shape}; fleet {fleet!r} serves {shape}")
    same = trace_packs.find_by_hash(change.session, fleet, content_hash)
    if same is not None:
        raise Conflict(f"trace pack {same.name!r} of fleet {fleet!r} has the same content")
    row = TracePackRow(
        id=new_id(),
        fleet=fleet,
        name=name,
        origin=origin,
        n_requests=len(trace),
        has_decode=trace.has_decode,
        size_bytes=len(data),
        content_hash=content_hash,
        created_at=change.now,
        created_by=change.actor,
    )
    trace_packs.add_pack(change.session, row, data)
    pack = trace_packs.to_pack(row)
    change.audit(
        action="create", resource="trace_pack", resource_id=row.id, fleet=fleet, reason=reason, after=pack
    )
    return pack


def get_trace_pack(session: ReadSession, fleet: str, pack_id: str) -> TracePackRow:
    """Find a pack, or refuse the request."""
    get_fleet(session, fleet)
    row = trace_packs.find_pack(session, fleet, pack_id)
    if row is None:
        raise NotFound(resource="trace pack", name=pack_id)
    return row


def list_trace_packs(session: ReadSession, fleet: str, cursor: str | None, limit: int) -> Page[TracePack]:
    """List packs, newest first."""
    get_fleet(session, fleet)
    found = trace_packs.list_packs(session, fleet, before_id=cursor, limit=limit + 1)
    return to_page(found, limit, lambda pack: pack.id)
