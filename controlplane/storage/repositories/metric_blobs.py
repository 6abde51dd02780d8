"""Metric blobs as routers sent them, kept until they are rolled up and can no longer arrive again."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import delete, select, update
from sqlalchemy.dialects import postgresql, sqlite

from controlplane.storage.database import ReadSession, WriteSession
from controlplane.storage.models.metadata import new_id
from controlplane.storage.models.telemetry import MetricBlobRow
from eldr_runtime.metrics_blob import BlobKey, MetricsBlob


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingBlob:
    """A blob that no roll-up has counted yet."""

    id: str
    blob: MetricsBlob


def add_blobs(session: WriteSession, fleet: str, blobs: Sequence[MetricsBlob], now: datetime) -> int:
    """Add the blobs that have not come before; return how many those are."""
    insert = sqlite.insert if session.get_bind().dialect.name == "sqlite" else postgresql.insert
    n_added = 0
    for blob in blobs:
        statement = insert(MetricBlobRow).values(
            id=new_id(),
            fleet=fleet,
            router_id=blob.key.router_id,
            window_start=blob.key.window_start,
            experiment_window=blob.key.experiment_window,
            sequence=blob.key.sequence,
            data=zlib.compress(blob.to_json().encode(), 1),
            received_at=now,
            is_rolled_up=False,
        )
        statement = statement.on_conflict_do_nothing()
        n_added += session.execute(statement.returning(MetricBlobRow.id)).first() is not None
    return n_added


def find_blob(session: ReadSession, fleet: str, key: BlobKey) -> MetricsBlob | None:
    """Find a blob by its key."""
    statement = select(MetricBlobRow.data).where(
        MetricBlobRow.fleet == fleet,
        MetricBlobRow.router_id == key.router_id,
        MetricBlobRow.window_start == key.window_start,
        MetricBlobRow.experiment_window == key.experiment_window,
        MetricBlobRow.sequence == key.sequence,
    )
    data = session.scalars(statement).one_or_none()
    return None if data is None else MetricsBlob.from_json(zlib.decompress(data))


def has_pending(session: ReadSession, fleet: str) -> bool:
    """Whether some blob of a fleet is not rolled up."""
    statement = select(MetricBlobRow.id).where(
        MetricBlobRow.fleet == fleet, MetricBlobRow.is_rolled_up.is_(False)
    )
    return session.scalars(statement.limit(1)).first() is not None


def read_pending(session: ReadSession, fleet: str, limit: int) -> list[PendingBlob]:
    """Read blobs that are not rolled up, in the order they came in."""
    statement = (
        select(MetricBlobRow.id, MetricBlobRow.data)
        .where(MetricBlobRow.fleet == fleet, MetricBlobRow.is_rolled_up.is_(False))
        .order_by(MetricBlobRow.id)
        .limit(limit)
    )
    return [
        PendingBlob(id=blob_id, blob=MetricsBlob.from_json(zlib.decompress(data)))
        for blob_id, data in session.execute(statement)
    ]


def mark_rolled_up(session: WriteSession, blob_ids: Sequence[str]) -> None:
    """Note that blobs are counted in the roll-ups."""
    statement = update(MetricBlobRow).where(MetricBlobRow.id.in_(blob_ids)).values(is_rolled_up=True)
    session.execute(statement.execution_options(synchronize_session=False))


def forget_blobs(session: WriteSession, before: datetime) -> None:
    """Remove counted blobs that came in before a time."""
    session.execute(
        delete(MetricBlobRow).where(MetricBlobRow.received_at < before, MetricBlobRow.is_rolled_up.is_(True))
    )
