"""Is the centroid version still right for the traffic? Three measures, each with its own alarm and cure.

- Fit degradation: requests lie farther from their centroids than the reference did. Cure: a refit.
- Mix shift: topics come in other shares. Notice, and rebalance.
- Union surprise: decode steps use more experts than predicted, which similarity cannot see.

Requests of one session resemble each other, so bounds come from resampling whole sessions of the reference
(a block bootstrap); a chi-square on occupancy, which takes requests as independent, fires on no drift at all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import numpy as np

from eldr_runtime.array_types import Floats, Ints
from eldr_runtime.errors import InvalidValue
from eldr_runtime.placed_traffic import PlacedTraffic
from eldr_runtime.session_bootstrap import occupancy_shift_bound, quantile_bound, weighted_quantile

LOW_QUANTILE = 0.1


class DriftVerdict(StrEnum):
    """What a measure says."""

    OK = "ok"
    DRIFT = "drift"
    INSUFFICIENT_DATA = "insufficient_data"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftSettings:
    """Floors and bounds of the three measures.

    Parameters
    ----------
    minimum_requests, minimum_sessions
        Below them, in the reference or now, fit degradation and mix shift give no verdict.
    mix_minimum_requests
        Mix shift needs more: at least 2,000.
    mix_threshold
        A population stability index under it is no shift, whatever the bootstrap says.
    union_minimum_steps
        Sampled decode steps of a worker that a verdict on it needs.
    union_threshold
        Observed over predicted active experts, relative to the ratio of the reference.
    false_alarm_share
        Share of windows without drift that may raise an alarm, for each of the first two measures.
    n_bootstrap
        Resamples of the sessions.
    """

    minimum_requests: int = 500
    minimum_sessions: int = 20
    mix_minimum_requests: int = 2000
    mix_threshold: float = 0.1
    union_minimum_steps: int = 1000
    union_threshold: float = 1.1
    false_alarm_share: float = 0.001
    n_bootstrap: int = 2000
    seed: int = 1

    def __post_init__(self) -> None:
        for name, least in (
            ("minimum_requests", 1),
            ("minimum_sessions", 2),
            ("mix_minimum_requests", 2000),
            ("union_minimum_steps", 1),
            ("seed", 0),
        ):
            if getattr(self, name) < least:
                raise InvalidValue(field=name, value=getattr(self, name), limit=f"at least {least}")
        if not self.mix_threshold > 0:
            raise InvalidValue(field="mix_threshold", value=self.mix_threshold, limit="above 0")
        if not self.union_threshold > 1:
            raise InvalidValue(field="union_threshold", value=self.union_threshold, limit="above 1")
        if not 0 < self.false_alarm_share <= 0.1:
            limit = "above 0, at most 0.1"
            raise InvalidValue(field="false_alarm_share", value=self.false_alarm_share, limit=limit)
        if self.n_bootstrap * self.false_alarm_share < 1:
            limit = f"at least 1 / false_alarm_share, {1 / self.false_alarm_share:g}"
            raise InvalidValue(field="n_bootstrap", value=self.n_bootstrap, limit=limit)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DriftReference:
    """What a version is judged against.

    Parameters
    ----------
    version_hash
        Content hash of the version whose centroids placed the traffic.
    traffic
        Requests the version was **not** fitted on, as those it was lie nearer to its centroids: the held-out
        half, or the first live traffic after the activation.
    union_ratio
        Observed over predicted active experts at that time, 1 where nobody measured it.
    """

    version_hash: str
    traffic: PlacedTraffic
    union_ratio: float = 1.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.union_ratio) and self.union_ratio > 0):
            raise InvalidValue(field="union_ratio", value=self.union_ratio, limit="finite, above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerUnions:
    """Active experts of one worker's sampled decode steps, summed over steps: as observed, as predicted."""

    worker_id: str
    n_steps: int
    observed_sum: float
    predicted_sum: float

    def __post_init__(self) -> None:
        if self.n_steps < 0:
            raise InvalidValue(field="n_steps", value=self.n_steps, limit="0 or more")
        for name in ("observed_sum", "predicted_sum"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value >= 0) or (self.n_steps and not value):
                raise InvalidValue(field=name, value=value, limit="finite, above 0 where there are steps")


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftMeasure:
    """One measure: its verdict, the number of requests or steps, the value and its bound.

    Parameters
    ----------
    value, threshold
        None where the data do not suffice to compute them.
    subject
        What the value is about where there are several: the worker of a union surprise.
    """

    verdict: DriftVerdict
    n: int
    value: float | None
    threshold: float | None
    subject: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftReport:
    """The three measures of one window under one version.

    Parameters
    ----------
    fit_degradation
        Value: 10 % quantile of similarity to the nearest centroid; drift below the threshold.
    mix_shift
        Value: smoothed population stability index of cluster occupancy; drift above the threshold.
    union_surprise
        Value: the largest observed over predicted active experts of a worker; drift above the threshold.
    """

    version_hash: str
    fit_degradation: DriftMeasure
    mix_shift: DriftMeasure
    union_surprise: DriftMeasure


def measure_drift(
    reference: DriftReference,
    recent: PlacedTraffic,
    unions: Sequence[WorkerUnions] = (),
    settings: DriftSettings | None = None,
) -> DriftReport:
    """Compare recent traffic, placed at the centroids of the same version, with the reference."""
    settings = settings or DriftSettings()
    if recent.n_clusters != reference.traffic.n_clusters:
        limit = f"{reference.traffic.n_clusters}, as in the reference"
        raise InvalidValue(field="n_clusters", value=recent.n_clusters, limit=limit)
    return DriftReport(
        version_hash=reference.version_hash,
        fit_degradation=_fit_degradation(reference.traffic, recent, settings),
        mix_shift=_mix_shift(reference.traffic, recent, settings),
        union_surprise=_union_surprise(reference.union_ratio, unions, settings),
    )


def population_stability_index(reference_counts: Ints | Floats, recent_counts: Ints | Floats) -> Floats:
    """Return the smoothed PSI, `sum (p - q) ln(p / q)`, half a request added to each cluster of both.

    Parameters
    ----------
    reference_counts, recent_counts
        int64 or float64 `(..., n_clusters)`, requests by cluster.

    Returns
    -------
    float64 `(...)`.

    Examples
    --------
    >>> float(population_stability_index(np.array([50, 50]), np.array([50, 50])))
    0.0
    """
    q, p = (
        (counts + 0.5) / (counts.sum(axis=-1, keepdims=True) + 0.5 * counts.shape[-1])
        for counts in (reference_counts, recent_counts)
    )
    index: Floats = ((p - q) * np.log(p / q)).sum(axis=-1)
    return index


def _fit_degradation(
    reference: PlacedTraffic, recent: PlacedTraffic, settings: DriftSettings
) -> DriftMeasure:
    n = len(recent)
    if not _suffices(reference, settings) or not _suffices(recent, settings):
        return DriftMeasure(verdict=DriftVerdict.INSUFFICIENT_DATA, n=n, value=None, threshold=None)
    value = weighted_quantile(np.sort(recent.similarities), np.ones(n), LOW_QUANTILE)
    threshold = quantile_bound(
        reference.similarities,
        reference.clusters,
        reference.sessions,
        recent_occupancy=recent.occupancy(),
        n_recent_sessions=recent.n_sessions,
        quantile=LOW_QUANTILE,
        false_alarm_share=settings.false_alarm_share,
        n_bootstrap=settings.n_bootstrap,
        seed=settings.seed,
    )
    verdict = DriftVerdict.DRIFT if value < threshold else DriftVerdict.OK
    return DriftMeasure(verdict=verdict, n=n, value=value, threshold=threshold)


def _mix_shift(reference: PlacedTraffic, recent: PlacedTraffic, settings: DriftSettings) -> DriftMeasure:
    n = len(recent)
    is_large = min(n, len(reference)) >= settings.mix_minimum_requests
    if not is_large or not _suffices(reference, settings) or not _suffices(recent, settings):
        return DriftMeasure(verdict=DriftVerdict.INSUFFICIENT_DATA, n=n, value=None, threshold=None)
    value = float(population_stability_index(reference.occupancy(), recent.occupancy()))
    bound = occupancy_shift_bound(
        reference.clusters,
        reference.sessions,
        n_clusters=reference.n_clusters,
        n_recent_sessions=recent.n_sessions,
        shift=population_stability_index,
        false_alarm_share=settings.false_alarm_share,
        n_bootstrap=settings.n_bootstrap,
        seed=settings.seed,
    )
    threshold = max(bound, settings.mix_threshold)
    verdict = DriftVerdict.DRIFT if value > threshold else DriftVerdict.OK
    return DriftMeasure(verdict=verdict, n=n, value=value, threshold=threshold)


def _union_surprise(
    reference_ratio: float, unions: Sequence[WorkerUnions], settings: DriftSettings
) -> DriftMeasure:
    known = [each for each in unions if each.n_steps >= settings.union_minimum_steps]
    n = sum(each.n_steps for each in unions)
    if not known:
        return DriftMeasure(verdict=DriftVerdict.INSUFFICIENT_DATA, n=n, value=None, threshold=None)
    ratios = {each.worker_id: each.observed_sum / each.predicted_sum for each in known}
    worst = max(sorted(ratios), key=ratios.__getitem__)
    threshold = settings.union_threshold * reference_ratio
    verdict = DriftVerdict.DRIFT if ratios[worst] > threshold else DriftVerdict.OK
    return DriftMeasure(verdict=verdict, n=n, value=ratios[worst], threshold=threshold, subject=worst)


def _suffices(traffic: PlacedTraffic, settings: DriftSettings) -> bool:
    return len(traffic) >= settings.minimum_requests and traffic.n_sessions >= settings.minimum_sessions


class RefitReason(StrEnum):
    """Why a refit starts, or why not."""

    FIT_DEGRADED = "fit_degraded"
    NO_DRIFT = "no_drift"
    INSUFFICIENT_DATA = "insufficient_data"
    ALREADY_RUNNING = "already_running"
    COOLING_DOWN = "cooling_down"
    TOO_FEW_SAMPLES = "too_few_samples"
    DAILY_LIMIT = "daily_limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class RefitDecision:
    """Whether to refit now, why, and the numbers that decided it in one sentence."""

    should_refit: bool
    reason: RefitReason
    explanation: str


def decide_refit(
    report: DriftReport,
    *,
    last_refit_at: datetime | None,
    cooldown_seconds: float,
    now: datetime,
    n_samples: int,
    minimum_samples: int,
    refits_today: int,
    max_per_day: int,
    is_refit_running: bool = False,
) -> RefitDecision:
    """Decide on a refit: fit degradation asks for one, and the guards may say not now.

    A mix shift asks for a rebalance and a union surprise for a look; neither starts a refit.
    """
    measure = report.fit_degradation
    if measure.verdict is DriftVerdict.INSUFFICIENT_DATA:
        return _no_refit(RefitReason.INSUFFICIENT_DATA, f"{measure.n} requests do not suffice for a verdict")
    found = f"similarity quantile {measure.value:.4f}, bound {measure.threshold:.4f}, n = {measure.n}"
    if measure.verdict is DriftVerdict.OK:
        return _no_refit(RefitReason.NO_DRIFT, found)
    if is_refit_running:
        return _no_refit(RefitReason.ALREADY_RUNNING, "a refit of this fleet is running")
    if last_refit_at is not None:
        since_seconds = (now - last_refit_at).total_seconds()
        if since_seconds < cooldown_seconds:
            explanation = f"last refit {since_seconds:.0f} s ago, cooldown {cooldown_seconds:.0f} s"
            return _no_refit(RefitReason.COOLING_DOWN, explanation)
    if n_samples < minimum_samples:
        return _no_refit(RefitReason.TOO_FEW_SAMPLES, f"{n_samples} signatures, {minimum_samples} needed")
    if refits_today >= max_per_day:
        return _no_refit(RefitReason.DAILY_LIMIT, f"{refits_today} refits today, at most {max_per_day}")
    return RefitDecision(should_refit=True, reason=RefitReason.FIT_DEGRADED, explanation=found)


def _no_refit(reason: RefitReason, explanation: str) -> RefitDecision:
    return RefitDecision(should_refit=False, reason=reason, explanation=explanation)
