"""Measure recent traffic against the reference of the active version; nothing is written."""

from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np

from controlplane.domain.metric_series import SeriesTotals, SubjectKind, sum_totals
from controlplane.errors import Conflict
from controlplane.services.keep_reference import StoredReference, read_drift
from controlplane.services.keep_version import shape_of
from controlplane.services.manage_fleets import get_fleet
from controlplane.services.sampled_use import prefill_use, random_union_by_layer
from controlplane.settings import Settings
from controlplane.storage.database import ReadSession
from controlplane.storage.models.versions import VersionRow
from controlplane.storage.repositories import (
    activations,
    metric_rows,
    samples,
    version_references,
    versions,
)
from controlplane.storage.repositories.samples import Placement, SampleFilter
from eldr_runtime.drift import DriftReference, DriftReport, DriftSettings, WorkerUnions, measure_drift
from eldr_runtime.placed_traffic import PlacedTraffic

# The newest of a window; more would not move a 10 % quantile.
MOST_REQUESTS = 5000
# Prompts of a worker's requests that the prediction of its unions is made of, over all workers.
PREDICTION_REQUESTS = 300
# Requests that were routed before an activation are in decode for a while after it.
SETTLE_SECONDS = 30.0
N_BOOTSTRAP = 1000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeasuredTraffic:
    """A drift report on a window, and what it was measured on; `new_reference` is to be stored."""

    version_id: str
    version_number: int
    window_seconds: float
    report: DriftReport
    recent: PlacedTraffic
    reference: PlacedTraffic
    new_reference: StoredReference | None


def measure_traffic(session: ReadSession, fleet: str, settings: Settings, now: datetime) -> MeasuredTraffic:
    """Measure the three kinds of drift over the last window, as far as it lies after the activation."""
    get_fleet(session, fleet)
    active = versions.find_active(session, fleet)
    activation = activations.activation_at(session, fleet, now)
    if active is None or activation is None:
        raise Conflict(f"fleet {fleet!r} has no active version that its traffic could drift from")
    since = max(now - timedelta(seconds=settings.drift_window_seconds), activation.at)
    recent = _recent(session, fleet, active, since)
    settled = max(since, activation.at + timedelta(seconds=SETTLE_SECONDS))
    unions = _unions(session, fleet, settled, now)
    stored, new_reference = _reference(session, fleet, active, unions, settings.drift_reference_samples)
    normal = [
        replace(each, predicted_sum=each.predicted_sum * stored.ratio_of(each.worker_id)) for each in unions
    ]
    report = measure_drift(
        replace(stored.reference, union_ratio=1.0),  # each worker's own is in the predictions
        recent,
        normal,
        DriftSettings(minimum_requests=settings.drift_minimum_samples, n_bootstrap=N_BOOTSTRAP),
    )
    return MeasuredTraffic(
        version_id=active.id,
        version_number=active.number,
        window_seconds=(now - since).total_seconds(),
        report=report,
        recent=recent,
        reference=stored.reference.traffic,
        new_reference=new_reference,
    )


def _recent(session: ReadSession, fleet: str, active: VersionRow, since: datetime) -> PlacedTraffic:
    wanted = SampleFilter(since=since, version_hash=active.content_hash)
    return _placed(samples.read_placements(session, fleet, wanted, limit=MOST_REQUESTS), active.n_centroids)


def _reference(
    session: ReadSession, fleet: str, active: VersionRow, unions: list[WorkerUnions], n_wanted: int
) -> tuple[StoredReference, StoredReference | None]:
    """Find the stored reference, or build it of the first traffic after the activation once there is enough.

    A version fitted on a trace pack is compared with live traffic only, since a pack may differ from it.
    """
    data = version_references.find_drift(session, active.id)
    if data is not None:
        return read_drift(data), None
    wanted = SampleFilter(version_hash=active.content_hash)
    first = samples.read_placements(session, fleet, wanted, limit=n_wanted, oldest_first=True)
    built = StoredReference(
        reference=DriftReference(
            version_hash=active.content_hash,
            traffic=_placed(first, active.n_centroids),
            union_ratio=_ratio(unions),
        ),
        ratio_by_worker={each.worker_id: _ratio([each]) for each in unions},
    )
    if len(first) < n_wanted or not unions:
        nothing = replace(built.reference, traffic=_placed([], active.n_centroids))
        return replace(built, reference=nothing), None
    return built, built


def _placed(placements: list[Placement], n_clusters: int) -> PlacedTraffic:
    signed = [each for each in placements if each.similarity > 0 and each.cluster < n_clusters]
    return PlacedTraffic(
        similarities=np.array([each.similarity for each in signed], dtype=np.float64),
        clusters=np.array([each.cluster for each in signed], dtype=np.int64),
        sessions=np.arange(len(signed), dtype=np.int64),  # no session is ever stored
        n_clusters=n_clusters,
    )


def _unions(session: ReadSession, fleet: str, since: datetime, now: datetime) -> list[WorkerUnions]:
    """Compare the experts that a worker's steps loaded with what the prompts of its requests let expect."""
    row = get_fleet(session, fleet)
    shape = shape_of(row)
    found = metric_rows.read_windows(
        session, fleet, SubjectKind.WORKER, shortest_seconds=1,
        longest_seconds=max(59, int(row.metrics_window_seconds)), since=since, until=now,
    )  # fmt: skip
    parts: defaultdict[str, list[SeriesTotals]] = defaultdict(list)
    for series in found:
        parts[series.key.subject].append(series.totals)
    stored = samples.read_counts(session, fleet, SampleFilter(since=since), limit=PREDICTION_REQUESTS)
    if not stored:
        return []
    use, workers = prefill_use(stored, shape), np.array([each.decode_worker for each in stored])
    unions = []
    for worker in sorted(parts):
        totals = sum_totals(parts[worker])
        active, batch = totals.active_experts, totals.mean_batch
        mine = use[workers == worker]
        if active is None or batch is None or not len(mine):
            continue
        predicted = float(random_union_by_layer(mine.mean(axis=0), batch).mean())
        unions.append(
            WorkerUnions(
                worker_id=worker,
                n_steps=totals.n_steps,
                observed_sum=active * totals.n_steps,
                predicted_sum=predicted * totals.n_steps,
            )
        )
    return unions


def _ratio(unions: list[WorkerUnions]) -> float:
    predicted = sum(each.predicted_sum for each in unions)
    return sum(each.observed_sum for each in unions) / predicted if predicted else 1.0
