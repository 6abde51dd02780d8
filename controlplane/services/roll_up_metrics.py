"""Count the blobs that came in since the last roll-up in the series they belong to."""

import logging
from collections import defaultdict
from datetime import timedelta

from controlplane.domain.metric_series import (
    COARSE_WINDOWS_SECONDS,
    LATEST_SECONDS,
    NO_VERSION,
    ExperimentSpan,
    SeriesKey,
    SeriesTotals,
    series_of_blob,
    sum_totals,
)
from controlplane.services.manage_fleets import get_fleet
from controlplane.services.record_change import Change
from controlplane.storage.repositories import experiments, metric_blobs, metric_rows, versions
from eldr_runtime.errors import InvalidMessage
from eldr_runtime.metrics_blob import MetricsBlob

logger = logging.getLogger(__name__)

BLOBS_AT_ONCE = 200
# How long roll-ups are kept: by the routers' windows, by the minute, by the hour.
KEEP_FINE = timedelta(hours=6)
KEEP_MINUTES = timedelta(days=7)
KEEP_HOURS = timedelta(days=400)
# A blob is known as a duplicate for longer than it may be late.
KEEP_BLOBS = timedelta(seconds=3 * LATEST_SECONDS)


def roll_up_metrics(change: Change, fleet: str) -> int:
    """Roll up the blobs that wait, oldest first; return how many there were."""
    session = change.session
    pending = metric_blobs.read_pending(session, fleet, BLOBS_AT_ONCE)
    if not pending:
        return 0
    oldest = min(each.blob.window_start for each in pending)
    spans = experiments.spans_since(session, fleet, oldest - timedelta(seconds=LATEST_SECONDS))
    numbers = _numbers(change, fleet, [each.blob for each in pending])
    n_layers = get_fleet(session, fleet).n_layers
    parts: defaultdict[SeriesKey, list[SeriesTotals]] = defaultdict(list)
    for each in pending:
        for key, totals in _series(each.blob, numbers, spans, n_layers):
            parts[key].append(totals)
    metric_rows.add_totals(session, fleet, {key: sum_totals(found) for key, found in parts.items()})
    metric_blobs.mark_rolled_up(session, [each.id for each in pending])
    return len(pending)


def forget_old_metrics(change: Change, fleet: str) -> None:
    """Remove roll-ups and blobs that are past their time."""
    session, now = change.session, change.now
    minute, hour = COARSE_WINDOWS_SECONDS
    metric_rows.forget_windows(session, fleet, longest_seconds=minute - 1, before=now - KEEP_FINE)
    metric_rows.forget_windows(session, fleet, longest_seconds=minute, before=now - KEEP_MINUTES)
    metric_rows.forget_windows(session, fleet, longest_seconds=hour, before=now - KEEP_HOURS)
    metric_blobs.forget_blobs(session, now - KEEP_BLOBS)


def _numbers(change: Change, fleet: str, blobs: list[MetricsBlob]) -> dict[str | None, int]:
    hashes = {row.key.version for blob in blobs for row in blob.rows if row.key.version is not None}
    found: dict[str | None, int] = {None: NO_VERSION}
    for content_hash in hashes:
        row = versions.find_by_hash(change.session, fleet, content_hash)
        found[content_hash] = NO_VERSION if row is None else row.number
    return found


def _series(
    blob: MetricsBlob, numbers: dict[str | None, int], spans: list[ExperimentSpan], n_layers: int
) -> list[tuple[SeriesKey, SeriesTotals]]:
    try:
        return list(series_of_blob(blob, numbers.__getitem__, spans, n_layers))
    except InvalidMessage as error:
        logger.warning("a blob of router %s is left out: %s", blob.router_id, error)
        return []
