"""Live metrics for people: points of series over time, and the experts that steps load by worker."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from controlplane.domain.metric_series import (
    COARSE_WINDOWS_SECONDS,
    NO_VERSION,
    SeriesKey,
    SeriesTotals,
    SubjectKind,
    floor_time,
    sum_totals,
)
from controlplane.domain.telemetry import MetricPoint, WorkerUnion
from controlplane.errors import InvalidField
from controlplane.services.manage_fleets import get_fleet
from controlplane.services.sampled_use import SampledUse, random_union_by_layer, sample_use
from controlplane.storage.database import ReadSession
from controlplane.storage.repositories import metric_rows
from controlplane.storage.repositories.metric_rows import Series
from controlplane.storage.repositories.samples import SampleFilter
from eldr_runtime.array_types import Floats32

MOST_STEPS = 1500
STEPS_WANTED = 120
STEPS_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 86_400)
ALL_ARMS = "all"
DEFAULT_RANGE = timedelta(hours=1)


class MetricsBy(StrEnum):
    """What metrics are told apart by."""

    FLEET = "fleet"
    WORKER = "worker"
    CLUSTER = "cluster"
    ARM = "arm"


@dataclass(frozen=True, slots=True, kw_only=True)
class PointKey:
    """What one point is about; what is None or `all` is summed over."""

    window_start: datetime
    arm: str = ALL_ARMS
    version_number: int | None = None
    worker_id: str | None = None
    cluster: int | None = None


def summarise_metrics(
    session: ReadSession,
    fleet: str,
    by: MetricsBy,
    *,
    since: datetime | None,
    until: datetime | None,
    step_seconds: int | None,
    now: datetime,
) -> tuple[MetricPoint, ...]:
    """Sum the roll-ups of a range in steps, by time."""
    window_seconds = int(get_fleet(session, fleet).metrics_window_seconds)
    until = now + timedelta(seconds=window_seconds) if until is None else until
    since = until - DEFAULT_RANGE if since is None else since
    step = choose_step(since, until, step_seconds, window_seconds)
    kind = SubjectKind.CLUSTER if by is MetricsBy.CLUSTER else SubjectKind.WORKER
    shortest, longest = _rolled_up_by(step, window_seconds)
    found = metric_rows.read_windows(
        session, fleet, kind, shortest_seconds=shortest, longest_seconds=longest,
        since=floor_time(since, step), until=until,
    )  # fmt: skip
    use = (
        sample_use(session, fleet, SampleFilter(until=until))
        if kind is SubjectKind.WORKER and found
        else None
    )
    groups: defaultdict[PointKey, list[Series]] = defaultdict(list)
    for series in found:
        groups[_point_key(by, series.key, step)].append(series)
    return tuple(_point(key, step, groups[key], use) for key in sorted(groups, key=_order))


def choose_step(since: datetime, until: datetime, step_seconds: int | None, window_seconds: int) -> int:
    """Check a step, or choose one that gives about a hundred of them."""
    range_seconds = (until - since).total_seconds()
    if range_seconds <= 0:
        raise InvalidField(field="since", value=since.isoformat(), limit=f"before {until.isoformat()}")
    if step_seconds is None:
        wanted = max(range_seconds / STEPS_WANTED, window_seconds)
        return next((step for step in STEPS_SECONDS if step >= wanted), STEPS_SECONDS[-1])
    shortest = max(window_seconds, int(range_seconds / MOST_STEPS))
    if step_seconds < shortest:
        limit = f"at least {shortest}, the window of the routers or the range in {MOST_STEPS} steps"
        raise InvalidField(field="step_seconds", value=step_seconds, limit=limit)
    return step_seconds


def list_unions(
    session: ReadSession, fleet: str, *, since: datetime | None, now: datetime
) -> tuple[WorkerUnion, ...]:
    """Tell how many distinct experts a step of each worker loads, beside what a random mix would load."""
    window_seconds = int(get_fleet(session, fleet).metrics_window_seconds)
    since = now - timedelta(minutes=5) if since is None else since
    step = choose_step(since, max(now, since + timedelta(seconds=1)), None, window_seconds)
    shortest, longest = _rolled_up_by(step, window_seconds)
    found = metric_rows.read_windows(
        session, fleet, SubjectKind.WORKER, shortest_seconds=shortest, longest_seconds=longest,
        since=since, until=now + timedelta(seconds=longest),
    )  # fmt: skip
    use = sample_use(session, fleet, SampleFilter(until=now + timedelta(seconds=window_seconds)))
    by_worker: defaultdict[str, list[SeriesTotals]] = defaultdict(list)
    for series in found:
        by_worker[series.key.subject].append(series.totals)
    unions = [_union(worker, sum_totals(parts), use) for worker, parts in sorted(by_worker.items())]
    return tuple(union for union in unions if union is not None)


def _rolled_up_by(step: int, window_seconds: int) -> tuple[int, int]:
    """Lengths of the roll-up windows that a step is summed from: the coarsest that divide it."""
    for coarse in sorted(COARSE_WINDOWS_SECONDS, reverse=True):
        if step % coarse == 0:
            return coarse, coarse
    # The routers' own windows, also of a time when they were of another length.
    return 1, max(window_seconds, min(COARSE_WINDOWS_SECONDS) - 1)


def _point_key(by: MetricsBy, key: SeriesKey, step: int) -> PointKey:
    start = floor_time(key.window_start, step)
    version_number = None if key.version_number == NO_VERSION else key.version_number
    if by is MetricsBy.WORKER:
        return PointKey(window_start=start, worker_id=key.subject)
    if by is MetricsBy.CLUSTER:
        return PointKey(window_start=start, cluster=int(key.subject), version_number=version_number)
    if by is MetricsBy.ARM:
        return PointKey(window_start=start, arm=key.arm, version_number=version_number)
    return PointKey(window_start=start)


def _order(key: PointKey) -> tuple[datetime, str, str, int, int]:
    return (
        key.window_start,
        key.arm,
        key.worker_id or "",
        -1 if key.cluster is None else key.cluster,
        key.version_number or 0,
    )


def _point(key: PointKey, step: int, group: Sequence[Series], use: SampledUse | None) -> MetricPoint:
    totals = sum_totals([series.totals for series in group])
    arms = {series.key.arm for series in group}
    numbers = {series.key.version_number for series in group}
    (number,) = numbers if len(numbers) == 1 else {NO_VERSION}
    by_worker = _by_worker(group)
    return MetricPoint(
        window_start=key.window_start,
        window_seconds=step,
        arm=arms.pop() if len(arms) == 1 else ALL_ARMS,
        version_number=None if number == NO_VERSION else number,
        worker_id=key.worker_id,
        cluster=key.cluster,
        n_requests=totals.n_requests,
        n_errors=totals.n_errors,
        n_without_signature=totals.n_without_signature,
        output_tokens=totals.output_tokens,
        tpot_p50_ms=totals.tpot.quantile_ms(0.5),
        tpot_p99_ms=totals.tpot.quantile_ms(0.99),
        ttft_p50_ms=totals.ttft.quantile_ms(0.5),
        ttft_p99_ms=totals.ttft.quantile_ms(0.99),
        active_experts=totals.active_experts,
        random_active_experts=None if use is None else _expected(by_worker, lambda _: use.pooled),
        predicted_active_experts=None if use is None else _expected(by_worker, use.by_worker.get),
        mean_band_size=totals.mean_band_size,
        mean_batch=totals.mean_batch,
    )


def _expected(
    totals_of: Mapping[str, SeriesTotals], use_of: Callable[[str], Floats32 | None]
) -> float | None:
    """Experts that steps of these workers would load at their mean batches, mean over layers and steps."""
    n_steps, loaded = 0, 0.0
    for worker, totals in totals_of.items():
        batch, use = totals.mean_batch, use_of(worker)
        if batch is not None and use is not None:
            n_steps += totals.n_steps
            loaded += totals.n_steps * float(random_union_by_layer(use, batch).mean())
    return loaded / n_steps if n_steps else None


def _by_worker(group: Sequence[Series]) -> dict[str, SeriesTotals]:
    parts: defaultdict[str, list[SeriesTotals]] = defaultdict(list)
    for series in group:
        if series.key.subject_kind is SubjectKind.WORKER:
            parts[series.key.subject].append(series.totals)
    return {worker: sum_totals(found) for worker, found in parts.items()}


def _union(worker: str, totals: SeriesTotals, use: SampledUse | None) -> WorkerUnion | None:
    batch = totals.mean_batch
    if not totals.active_experts_sum or batch is None:
        return None
    predicted = None if use is None else _expected({worker: totals}, use.by_worker.get)
    active = totals.active_experts
    return WorkerUnion(
        worker_id=worker,
        n_steps=totals.n_steps,
        mean_batch=batch,
        active_by_layer=tuple(layer / totals.n_steps for layer in totals.active_experts_sum),
        random_by_layer=() if use is None else tuple(random_union_by_layer(use.pooled, batch).tolist()),
        observed_over_predicted=active / predicted if active is not None and predicted else None,
    )
