"""Take what a router saw: sampled requests become samples, blobs wait for the next roll-up.

Either may come again, and in any order. All counts are opened once, to check them and to place the request;
they are stored as they came.
"""

import json
import logging
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np

from controlplane.domain.metric_series import LATEST_SECONDS
from controlplane.domain.telemetry import SampledDecision, TelemetryReceipt
from controlplane.services.keep_version import shape_of
from controlplane.services.manage_fleets import get_fleet
from controlplane.services.place_samples import (
    SIMILARITY_DIGITS,
    RoutedVersion,
    load_by_hash,
    nearest,
    sign_counts,
)
from controlplane.storage.database import Database
from controlplane.storage.models.metadata import new_id
from controlplane.storage.repositories import metric_blobs, samples
from eldr_runtime.count_codec import ExpertCounts
from eldr_runtime.decode_profile import EncodedCounts
from eldr_runtime.errors import InvalidMessage
from eldr_runtime.json_values import to_json_value
from eldr_runtime.model_shape import ModelShape
from eldr_runtime.routing_event import RoutingEvent
from eldr_runtime.telemetry_batch import TelemetryBatch

logger = logging.getLogger(__name__)

# Clocks of routers may be ahead by this much.
AHEAD_SECONDS = 60
# Events are told by the time the request came, which may have been long before its end.
EVENT_LATEST_SECONDS = 3600
# A window lasts a minute at most, and its blob may come ten minutes late.
BLOB_LATEST_SECONDS = LATEST_SECONDS + 60


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedEvent:
    """An event whose counts have been checked; None where it has none, or none that can be right."""

    event: RoutingEvent
    prefill: ExpertCounts | None
    decode: ExpertCounts | None


def ingest_telemetry(
    database: Database, fleet: str, batch: TelemetryBatch, now: datetime
) -> TelemetryReceipt:
    """Store a batch. Everything is checked and worked out before the write transaction begins."""
    events = [event for event in batch.events if is_in_time(event.at, now, EVENT_LATEST_SECONDS)]
    blobs = [blob for blob in batch.blobs if is_in_time(blob.window_start, now, BLOB_LATEST_SECONDS)]
    with database.read() as session:
        shape = shape_of(get_fleet(session, fleet))
        hashes = {event.version for event in events if event.version is not None}
        routed = {content_hash: load_by_hash(session, fleet, content_hash) for content_hash in hashes}
        known = samples.known_request_ids(session, fleet, [event.request_id for event in events])
    fresh = {event.request_id: event for event in events if event.request_id not in known}
    opened = [open_event(event, shape) for event in fresh.values()]
    rows = [
        row
        for content_hash in {each.event.version for each in opened}
        for row in _rows(
            fleet,
            [each for each in opened if each.event.version == content_hash],
            None if content_hash is None else routed[content_hash],
        )
    ]
    with database.write() as session:
        samples.add_samples(session, rows)
        n_blobs = metric_blobs.add_blobs(session, fleet, blobs, now)
    return TelemetryReceipt(
        accepted_events=len(rows),
        accepted_blobs=n_blobs,
        duplicates=len(events) - len(rows) + len(blobs) - n_blobs,
        out_of_time=len(batch.events) - len(events) + len(batch.blobs) - len(blobs),
    )


def is_in_time(at: datetime, now: datetime, latest_seconds: float) -> bool:
    """Whether something that happened at a time may still be taken."""
    return now - timedelta(seconds=latest_seconds) <= at <= now + timedelta(seconds=AHEAD_SECONDS)


def open_event(event: RoutingEvent, shape: ModelShape) -> OpenedEvent:
    """Check an event's counts. Counts that cannot be right are left out and logged, the decision is kept."""
    try:
        prefill = _open(event.counts, shape)
        decode = _open(event.decode_counts, shape)
    except InvalidMessage as error:
        logger.warning("counts of request %s are refused: %s", event.request_id, error)
        return OpenedEvent(event=event, prefill=None, decode=None)
    if prefill is None or prefill.covered == 0:
        return OpenedEvent(event=event, prefill=None, decode=None)
    has_decode = decode is not None and decode.covered > 0
    return OpenedEvent(event=event, prefill=prefill, decode=decode if has_decode else None)


def _open(encoded: EncodedCounts | None, shape: ModelShape) -> ExpertCounts | None:
    if encoded is None:
        return None
    counts = encoded.to_counts()
    if counts.shape != shape:
        raise InvalidMessage(field="shape of counts", value=str(counts.shape), limit=str(shape))
    return counts


def _rows(fleet: str, opened: Sequence[OpenedEvent], routed: RoutedVersion | None) -> list[dict[str, object]]:
    """Columns of samples that were routed by one version; its centroids place those that have counts."""
    placed: dict[str, tuple[int, float]] = {}
    version = None if routed is None else routed.version
    signed = [(each.event.request_id, each.prefill) for each in opened if each.prefill is not None]
    if version is not None and signed:
        counts = np.stack([prefill.counts for _, prefill in signed])
        clusters, similarities = nearest(version, sign_counts(version, counts))
        for (request_id, _), cluster, similarity in zip(signed, clusters, similarities, strict=True):
            placed[request_id] = (int(cluster), round(float(similarity), SIMILARITY_DIGITS))
    number = None if routed is None else routed.number
    return [_row(fleet, each, number, placed.get(each.event.request_id)) for each in opened]


def _row(
    fleet: str, opened: OpenedEvent, number: int | None, placed: tuple[int, float] | None
) -> dict[str, object]:
    event, prefill, decode = opened.event, opened.prefill, opened.decode
    decision = to_decision(event, number)
    return {
        "id": new_id(),
        "fleet": fleet,
        "request_id": event.request_id,
        "at": event.at,
        "arm": event.arm,
        "version_hash": event.version,
        "version_number": number,
        "decode_worker": event.decode_worker or "",
        "cluster": event.cluster if placed is None else placed[0],
        "similarity": None if placed is None else placed[1],
        "label": None,
        "decision": json.dumps(to_json_value(decision), separators=(",", ":")),
        "prompt_tokens": event.prompt_tokens if prefill is None else prefill.tokens,
        "covered_tokens": 0 if prefill is None else prefill.covered,
        "prefill_counts": _packed(event.counts) if prefill is not None else None,
        "decode_steps": None if decode is None else decode.covered,
        "decode_counts": _packed(event.decode_counts) if decode is not None else None,
    }


def _packed(encoded: EncodedCounts | None) -> bytes | None:
    return None if encoded is None else b64decode(encoded.counts)


def to_decision(event: RoutingEvent, version_number: int | None) -> SampledDecision:
    """Build what people are shown of an event."""
    return SampledDecision(
        request_id=event.request_id,
        at=event.at,
        arm=event.arm,
        version_number=version_number,
        prefill_worker=event.prefill_worker or "",
        decode_worker=event.decode_worker or "",
        cluster=event.cluster,
        similarities=dict(event.similarities),
        band=event.band,
        in_flight=dict(event.in_flight),
        reason="" if event.reason is None else event.reason.value,
        ttft_ms=event.ttft_ms,
        tpot_ms=event.tpot_ms,
        prompt_tokens=event.prompt_tokens,
        output_tokens=event.output_tokens,
        outcome=event.outcome.value,
    )
