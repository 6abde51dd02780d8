"""Sampled requests: their decisions, and their expert counts as they came, zlib-compressed."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, delete, func, select, update
from sqlalchemy.dialects import postgresql, sqlite

from controlplane.storage.database import ReadSession, WriteSession
from controlplane.storage.models.telemetry import SampleRow

ROWS_AT_ONCE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCounts:
    """One sampled request with its expert counts; the decode counts only where the sample has them."""

    request_id: str
    at: datetime
    decode_worker: str
    cluster: int | None
    similarity: float | None
    label: str | None
    version_hash: str | None
    version_number: int | None
    prompt_tokens: int
    covered_tokens: int
    prefill_counts: bytes
    decode_steps: int | None
    decode_counts: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where one sampled request lay among the centroids."""

    at: datetime
    cluster: int
    similarity: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleFilter:
    """Which samples to read, newest first; `version_hash` is of the version that placed them."""

    since: datetime | None = None
    until: datetime | None = None
    version_hash: str | None = None
    worker: str | None = None
    cluster: int | None = None


def known_request_ids(session: ReadSession, fleet: str, request_ids: Sequence[str]) -> set[str]:
    """Find which requests have been stored before."""
    found: set[str] = set()
    for start in range(0, len(request_ids), ROWS_AT_ONCE):
        some = request_ids[start : start + ROWS_AT_ONCE]
        statement = select(SampleRow.request_id).where(
            SampleRow.fleet == fleet, SampleRow.request_id.in_(some)
        )
        found.update(session.scalars(statement))
    return found


def add_samples(session: WriteSession, rows: Sequence[dict[str, object]]) -> None:
    """Add samples; one that another batch has stored meanwhile stays as it is."""
    if rows:
        insert = sqlite.insert if session.get_bind().dialect.name == "sqlite" else postgresql.insert
        session.execute(insert(SampleRow).on_conflict_do_nothing(), rows)


def read_decisions(
    session: ReadSession, fleet: str, wanted: SampleFilter, *, before_id: str | None, limit: int
) -> list[tuple[str, str]]:
    """Read ids and decisions, newest first."""
    statement = select(SampleRow.id, SampleRow.decision).where(*_conditions(fleet, wanted))
    if before_id is not None:
        statement = statement.where(SampleRow.id < before_id)
    rows = session.execute(statement.order_by(SampleRow.id.desc()).limit(limit))
    return [(sample_id, decision) for sample_id, decision in rows]


def find_decision(session: ReadSession, fleet: str, request_id: str) -> str | None:
    """Find the decision of one request."""
    statement = select(SampleRow.decision).where(SampleRow.fleet == fleet, SampleRow.request_id == request_id)
    return session.scalars(statement).one_or_none()


def read_counts(
    session: ReadSession, fleet: str, wanted: SampleFilter, *, limit: int, needs_decode: bool = False
) -> list[StoredCounts]:
    """Read the newest samples that have prefill counts, or with `needs_decode` both kinds; newest first."""
    columns = [getattr(SampleRow, name) for name in StoredCounts.__dataclass_fields__]
    statement = select(*columns).where(*_conditions(fleet, wanted), SampleRow.prefill_counts.is_not(None))
    if needs_decode:
        statement = statement.where(SampleRow.decode_counts.is_not(None))
    found = session.execute(statement.order_by(SampleRow.at.desc(), SampleRow.id.desc()).limit(limit))
    return [StoredCounts(**row) for row in found.mappings()]


def count_counts(
    session: ReadSession, fleet: str, wanted: SampleFilter, *, needs_decode: bool = False
) -> int:
    """Count the samples that `read_counts` would read without a limit."""
    statement = select(func.count(SampleRow.id)).where(
        *_conditions(fleet, wanted), SampleRow.prefill_counts.is_not(None)
    )
    if needs_decode:
        statement = statement.where(SampleRow.decode_counts.is_not(None))
    return session.scalars(statement).one()


def read_placements(
    session: ReadSession, fleet: str, wanted: SampleFilter, *, limit: int, oldest_first: bool = False
) -> list[Placement]:
    """Read where samples lay, newest first unless asked otherwise."""
    statement = select(SampleRow.at, SampleRow.cluster, SampleRow.similarity).where(
        *_conditions(fleet, wanted), SampleRow.cluster.is_not(None), SampleRow.similarity.is_not(None)
    )
    order = SampleRow.at.asc() if oldest_first else SampleRow.at.desc()
    found = session.execute(statement.order_by(order).limit(limit))
    return [
        Placement(at=at, cluster=cluster, similarity=similarity)
        for at, cluster, similarity in found
        if cluster is not None and similarity is not None
    ]


def forget_samples(session: WriteSession, fleet: str, before: datetime) -> None:
    """Remove the samples that are older than their retention."""
    session.execute(delete(SampleRow).where(SampleRow.fleet == fleet, SampleRow.at < before))


def forget_counts_beyond(session: WriteSession, fleet: str, keep: int) -> None:
    """Drop the expert counts of all but the newest samples; the decisions stay."""
    newest = (
        select(SampleRow.at)
        .where(SampleRow.fleet == fleet, SampleRow.prefill_counts.is_not(None))
        .order_by(SampleRow.at.desc())
        .offset(keep)
        .limit(1)
    )
    oldest_to_drop = session.scalars(newest).one_or_none()
    if oldest_to_drop is not None:
        session.execute(
            update(SampleRow)
            .where(
                SampleRow.fleet == fleet,
                SampleRow.at <= oldest_to_drop,
                SampleRow.prefill_counts.is_not(None),
            )
            .values(prefill_counts=None, decode_counts=None, decode_steps=None)
            .execution_options(synchronize_session=False)
        )


def _conditions(fleet: str, wanted: SampleFilter) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = [SampleRow.fleet == fleet]
    if wanted.since is not None:
        conditions.append(SampleRow.at >= wanted.since)
    if wanted.until is not None:
        conditions.append(SampleRow.at < wanted.until)
    if wanted.version_hash is not None:
        conditions.append(SampleRow.version_hash == wanted.version_hash)
    if wanted.worker is not None:
        conditions.append(SampleRow.decode_worker == wanted.worker)
    if wanted.cluster is not None:
        conditions.append(SampleRow.cluster == wanted.cluster)
    return conditions
