"""Roll-ups of what routers count: which windows and series a blob's rows go to, and how they add up."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from controlplane.domain.arms import CONTROL_ARM, TREATMENT_ARM
from controlplane.domain.latency_counts import LatencyCounts, add_counts
from eldr_runtime.errors import InvalidMessage
from eldr_runtime.experiment_design import ArmSchedule, ArmWindow, ScheduleKind, arm_at
from eldr_runtime.metrics_blob import MetricsBlob, MetricsRow

# Beside the routers' own windows of seconds, everything is kept by the minute and by the hour.
COARSE_WINDOWS_SECONDS = (60, 3600)
NO_EXPERIMENT = ""
NO_WINDOW = -1
NO_VERSION = 0
# A request may outlive the window it arrived in; a blob that tells of it may be late.
LATEST_SECONDS = 600


class SubjectKind(StrEnum):
    """What a series counts."""

    WORKER = "worker"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesKey:
    """One window of one series."""

    window_seconds: int
    window_start: datetime
    subject_kind: SubjectKind
    subject: str
    arm: str
    version_number: int
    experiment_id: str = NO_EXPERIMENT
    experiment_window: int = NO_WINDOW
    is_washout: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesTotals:
    """What was counted in one window of one series; sums, so that totals add up in any order.

    `active_experts_sum` is by layer, empty where no step was seen; `batch_sum` 0 where batches are unknown.
    """

    n_requests: int = 0
    n_errors: int = 0
    n_without_signature: int = 0
    output_tokens: int = 0
    band_size_sum: float = 0.0
    n_bands: int = 0
    n_steps: int = 0
    batch_sum: float = 0.0
    active_experts_sum: tuple[float, ...] = ()
    tpot: LatencyCounts = field(default_factory=LatencyCounts)
    ttft: LatencyCounts = field(default_factory=LatencyCounts)

    @property
    def active_experts(self) -> float | None:
        """Distinct experts a decode step loads, mean over layers and steps."""
        if not self.n_steps or not self.active_experts_sum:
            return None
        return math.fsum(self.active_experts_sum) / len(self.active_experts_sum) / self.n_steps

    @property
    def mean_batch(self) -> float | None:
        """Requests in a decode step."""
        return self.batch_sum / self.n_steps if self.n_steps and self.batch_sum else None

    @property
    def mean_band_size(self) -> float | None:
        """Workers in the band of a request."""
        return self.band_size_sum / self.n_bands if self.n_bands else None


def sum_totals(parts: Sequence[SeriesTotals]) -> SeriesTotals:
    """Add up totals of several windows or series.

    Examples
    --------
    >>> sum_totals([SeriesTotals(n_requests=1), SeriesTotals(n_requests=2)]).n_requests
    3
    """
    if len(parts) == 1:
        return parts[0]
    return SeriesTotals(
        n_requests=sum(part.n_requests for part in parts),
        n_errors=sum(part.n_errors for part in parts),
        n_without_signature=sum(part.n_without_signature for part in parts),
        output_tokens=sum(part.output_tokens for part in parts),
        band_size_sum=math.fsum(part.band_size_sum for part in parts),
        n_bands=sum(part.n_bands for part in parts),
        n_steps=sum(part.n_steps for part in parts),
        batch_sum=math.fsum(part.batch_sum for part in parts),
        active_experts_sum=_sum_layers([part.active_experts_sum for part in parts]),
        tpot=add_counts(part.tpot for part in parts),
        ttft=add_counts(part.ttft for part in parts),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentSpan:
    """The windows of an experiment: from the first on, two for each pair."""

    id: str
    first_window: int
    n_pairs: int
    window_seconds: int
    washout_seconds: int
    seed: int

    @property
    def schedule(self) -> ArmSchedule:
        """The schedule that routers follow."""
        return ArmSchedule(
            seed=self.seed,
            window_seconds=self.window_seconds,
            washout_seconds=self.washout_seconds,
            kind=ScheduleKind.SWITCHBACK,
        )

    @property
    def windows(self) -> range:
        """Indices of its windows."""
        return range(self.first_window, self.first_window + 2 * self.n_pairs)

    def arm_window(self, index: int) -> ArmWindow:
        """Arm and pair of one window."""
        return arm_at(self.schedule, ARMS, index * self.window_seconds)

    def start_of(self, index: int) -> datetime:
        """When a window starts."""
        return datetime.fromtimestamp(index * self.window_seconds, UTC)

    def holds(self, blob: MetricsBlob, arm: str) -> bool:
        """Whether a row of a blob belongs to the experiment: right window, right time, the arm of its turn.

        The number of a window says nothing by itself, since other schedules number other windows alike.
        """
        index = blob.experiment_window
        if index not in self.windows or self.arm_window(index).arm != arm:
            return False
        start = self.start_of(index)
        earliest = start - timedelta(seconds=blob.window_seconds)
        return (
            earliest <= blob.window_start <= start + timedelta(seconds=self.window_seconds + LATEST_SECONDS)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _ArmShare:
    name: str
    share: float = 0.5


ARMS = (_ArmShare(name=TREATMENT_ARM), _ArmShare(name=CONTROL_ARM))


def series_of_blob(
    blob: MetricsBlob,
    version_number_of: Callable[[str | None], int],
    experiments: Sequence[ExperimentSpan],
    n_layers: int,
) -> Iterator[tuple[SeriesKey, SeriesTotals]]:
    """Return what a blob adds to each series it counts in: by its window, by coarser ones, by experiment."""
    windows = sorted({blob.window_seconds, *COARSE_WINDOWS_SECONDS})
    for row in blob.rows:
        totals = _totals(row, n_layers)
        kind, subject = _subject(row)
        for window_seconds in windows:
            if window_seconds < blob.window_seconds:
                continue
            key = SeriesKey(
                window_seconds=window_seconds,
                window_start=floor_time(blob.window_start, window_seconds),
                subject_kind=kind,
                subject=subject,
                arm=row.key.arm,
                version_number=version_number_of(row.key.version),
            )
            yield key, totals
        for span in experiments:
            if span.holds(blob, row.key.arm):
                key = SeriesKey(
                    window_seconds=span.window_seconds,
                    window_start=span.start_of(blob.experiment_window),
                    subject_kind=kind,
                    subject=subject,
                    arm=row.key.arm,
                    version_number=version_number_of(row.key.version),
                    experiment_id=span.id,
                    experiment_window=blob.experiment_window,
                    is_washout=blob.is_washout,
                )
                yield key, totals


def floor_time(at: datetime, window_seconds: int) -> datetime:
    """Start of the window, counted from the Unix epoch, that a time lies in."""
    seconds = int(at.timestamp()) // window_seconds * window_seconds
    return datetime.fromtimestamp(seconds, UTC)


def _subject(row: MetricsRow) -> tuple[SubjectKind, str]:
    if row.key.worker is not None:
        return SubjectKind.WORKER, row.key.worker
    return SubjectKind.CLUSTER, str(row.key.cluster)


def _totals(row: MetricsRow, n_layers: int) -> SeriesTotals:
    experts = row.active_experts
    if experts is not None and len(experts.sum_by_layer) != n_layers:
        raise InvalidMessage(
            field="layers of sum_by_layer", value=len(experts.sum_by_layer), limit=f"{n_layers}, the model's"
        )
    return SeriesTotals(
        n_requests=row.n_requests,
        n_errors=row.n_errors,
        n_without_signature=row.n_without_signature,
        output_tokens=row.output_tokens,
        band_size_sum=float(row.band_size_sum),
        n_bands=row.n_requests,
        n_steps=0 if experts is None else experts.n_steps,
        batch_sum=0.0 if experts is None or experts.batch_sum is None else experts.batch_sum,
        active_experts_sum=() if experts is None else experts.sum_by_layer,
        tpot=LatencyCounts.from_base64(row.tpot_histogram),
        ttft=LatencyCounts.from_base64(row.ttft_histogram),
    )


def _sum_layers(sums: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
    known = [each for each in sums if each]
    return tuple(math.fsum(layer) for layer in zip(*known, strict=True))
