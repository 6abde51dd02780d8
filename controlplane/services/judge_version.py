"""Compare a version with the active one on stored traffic, for the gate of promotion.

The calibration job compares when it stores a version (`compare` on requests it held out, `remember`). What
was not compared then, an upload or a version older than the active one, is compared when it is first asked
for, on the newest stored trace with decode counts, outside of any write transaction.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np

from controlplane.domain.promotion_gate import GateComparison
from controlplane.services.keep_version import get_version, load_version
from controlplane.storage.database import Database, ReadSession, WriteSession
from controlplane.storage.models.calibrations import TracePackRow
from controlplane.storage.models.versions import VersionRow
from controlplane.storage.repositories import calibration_sources, trace_packs, versions
from eldr_runtime.centroid_version import CentroidVersion
from eldr_runtime.errors import InvalidTrace
from eldr_runtime.expert_trace import ExpertTrace
from eldr_runtime.trace_files import load_trace
from eldr_runtime.version_comparison import PairedComparison, compare_versions, pooled

BATCH_SIZES = (16, 8)
N_BATCHES = 20
MAX_REQUESTS = 2000
# Counts a comparison goes through, requests x layers x experts x batches: of a model of 48 x 128 that is 400
# requests, which took 8 CPU seconds.
MAX_COUNTS = 50_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A version, and the requests to compare it with the active one on."""

    candidate: CentroidVersion
    trace: ExpertTrace


@dataclass(frozen=True, slots=True, kw_only=True)
class Grounds:
    """What the requests of trials are called, and whether neither version was fitted on them."""

    name: str
    is_held_out: bool


def compare(
    trials: Sequence[Trial], active: CentroidVersion, grounds: Grounds, now: datetime
) -> GateComparison | None:
    """Compare with the active version on the newest requests of each trial, and take all trials as one.

    None where they are too few, or without decode counts.
    """
    newest = [Trial(candidate=each.candidate, trace=_newest(each.trace)) for each in trials]
    if not all(each.trace.has_decode for each in newest):
        return None
    for batch_size in BATCH_SIZES:
        try:
            found = pooled([_compare(trial, active, batch_size) for trial in newest])
        except InvalidTrace:
            continue  # no cluster of a whole batch in half of the requests: try the smaller batch
        return GateComparison(
            other_hash=active.content_hash,
            mean_points=found.mean_points,
            low_points=found.interval[0],
            high_points=found.interval[1],
            batch_size=batch_size,
            n_requests=sum(len(each.trace) for each in newest),
            trace=grounds.name,
            is_held_out=grounds.is_held_out,
            compared_at=now,
        )
    return None


def _compare(trial: Trial, active: CentroidVersion, batch_size: int) -> PairedComparison:
    return compare_versions(trial.candidate, active, trial.trace, batch_size=batch_size, n_batches=N_BATCHES)


def remember(session: WriteSession, row: VersionRow, comparison: GateComparison) -> None:
    """Store a comparison with its version, in place of an older one with the same other version."""
    kept = [old for old in versions.read_gate(row) if old.other_hash != comparison.other_hash]
    versions.write_gate(row, [*kept, comparison])
    session.flush()


def compare_if_needed(database: Database, fleet: str, version_id: str, now: datetime) -> None:
    """See to it that a version has been compared with the active one, if there is traffic to do it on."""
    with database.read() as session:
        row = get_version(session, fleet, version_id)
        active_row = versions.find_active(session, fleet)
        if active_row is None or active_row.id == row.id:
            return
        if any(old.other_hash == active_row.content_hash for old in versions.read_gate(row)):
            return
        pack = trace_packs.find_newest_with_decode(session, fleet)
        if pack is None:
            return
        trial = Trial(candidate=load_version(session, row), trace=load_stored_trace(session, pack))
        active = load_version(session, active_row)
        grounds = _grounds(session, pack, row, active_row)
    comparison = compare([trial], active, grounds, now)
    if comparison is not None:
        with database.write() as writer:
            remember(writer, get_version(writer, fleet, version_id), comparison)


def _grounds(session: ReadSession, pack: TracePackRow, candidate: VersionRow, active: VersionRow) -> Grounds:
    fitted_on = calibration_sources.pack_ids_of(
        session, (candidate.calibration_run_id, active.calibration_run_id)
    )
    return Grounds(name=f"trace pack {pack.name!r}", is_held_out=pack.id not in fitted_on)


def load_stored_trace(session: ReadSession, pack: TracePackRow) -> ExpertTrace:
    """Load a stored trace pack."""
    with tempfile.TemporaryDirectory(prefix="eldr-pack-") as folder:
        path = Path(folder) / "pack.safetensors"
        path.write_bytes(trace_packs.read_pack(session, pack.id))
        return load_trace(path)


def _newest(trace: ExpertTrace) -> ExpertTrace:
    affordable = MAX_COUNTS // (trace.shape.n_layers * trace.shape.n_experts * N_BATCHES)
    n_requests = min(len(trace), MAX_REQUESTS, affordable)
    return trace.select(np.arange(len(trace) - n_requests, len(trace), dtype=np.int64))
