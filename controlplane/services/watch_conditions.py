"""Read the conditions of alerts not about drift: load, workers, routers, signatures, refits, TPOT."""

import math
from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta

import numpy as np

from controlplane.domain.alert_rules import Reading, RuleName
from controlplane.domain.arms import CONTROL_ARM, TREATMENT_ARM
from controlplane.domain.calibrations import RunState
from controlplane.domain.experiment_effects import complete_pairs, measure_windows
from controlplane.domain.fleets import RouterStatus, Worker, WorkerState
from controlplane.domain.metric_series import SeriesTotals, SubjectKind, sum_totals
from controlplane.services.manage_fleets import get_fleet
from controlplane.services.show_routers import show_routers
from controlplane.settings import Settings
from controlplane.storage.database import ReadSession
from controlplane.storage.models.calibrations import CalibrationRunRow
from controlplane.storage.repositories import (
    calibration_runs,
    experiments,
    metric_rows,
    running_experiments,
    workers,
)
from eldr_runtime.centroid_version import VersionOrigin
from eldr_runtime.experiment_design import sign_flip_test
from eldr_runtime.heartbeats import ConfigSource

CONDITION_RULES = (
    RuleName.LOAD_IMBALANCE,
    RuleName.WORKER_LOST,
    RuleName.ROUTER_LAGGING,
    RuleName.SIGNATURE_MISSING,
    RuleName.REFIT_FAILED,
    RuleName.TPOT_REGRESSION,
)
WINDOW = timedelta(seconds=60)
LEAST_REQUESTS = 100
LEAST_STEPS = 200
# Under a batch of four, twice the mean is chance.
LEAST_MEAN_BATCH = 4.0
IMBALANCE = (2.0, 1.7)  # fire above, clear at or below
MISSING_SHARE = (0.05, 0.02)
REGRESSION_PERCENT = (2.0, 0.0)
FAILURE_COUNTS = timedelta(days=1)
YES_OR_NO = (0.5, 0.5)


def read_conditions(session: ReadSession, fleet: str, settings: Settings, now: datetime) -> list[Reading]:
    """Read every condition of a fleet as it is now."""
    by_worker = _recent_totals(session, fleet, now)
    found = workers.list_workers(session, fleet, now)
    readings = [
        *worker_readings(found),
        *router_readings(show_routers(session, fleet, now, settings)),
        *regression_readings(session, fleet, now),
    ]
    newest = calibration_runs.find_newest(session, fleet, VersionOrigin.DRIFT_REFIT)
    for reading in (
        imbalance_reading(_by_worker(by_worker)),
        signature_reading([totals for (_, number), totals in by_worker.items() if number > 0]),
        refit_reading(newest, now),
    ):
        if reading is not None:
            readings.append(reading)
    return readings


def worker_readings(found: list[Worker]) -> list[Reading]:
    """Read for each worker whether its lease ran out."""
    return [
        _yes_or_no(
            RuleName.WORKER_LOST,
            worker.worker_id,
            worker.state is WorkerState.LOST,
            f"{worker.role} worker {worker.worker_id} was last seen at {worker.last_seen_at:%H:%M:%S} UTC",
        )
        for worker in found
    ]


def router_readings(found: tuple[RouterStatus, ...]) -> list[Reading]:
    """Read for each router whether it lags, or serves from its last known good configuration."""
    readings = []
    for router in found:
        is_on_disk = router.config_source != ConfigSource.CONTROL_PLANE
        summary = (
            f"router {router.router_id} runs generation {router.generation_applied} "
            f"from {router.config_source}, last seen at {router.last_seen_at:%H:%M:%S} UTC"
        )
        readings.append(
            _yes_or_no(RuleName.ROUTER_LAGGING, router.router_id, router.is_lagging or is_on_disk, summary)
        )
    return readings


def imbalance_reading(by_worker: Mapping[str, SeriesTotals]) -> Reading | None:
    """Read how far the mean decode batch of the busiest worker is above that of all."""
    batches = {
        worker: batch
        for worker, totals in by_worker.items()
        if (batch := totals.mean_batch) is not None and totals.n_steps >= LEAST_STEPS
    }
    n_requests = sum(totals.n_requests for totals in by_worker.values())
    if len(batches) < 2 or n_requests < LEAST_REQUESTS:
        return None
    busiest = max(sorted(batches), key=batches.__getitem__)
    mean, most = math.fsum(batches.values()) / len(batches), batches[busiest]
    return Reading(
        rule=RuleName.LOAD_IMBALANCE,
        value=1 + (most - mean) / max(mean, LEAST_MEAN_BATCH),
        n=n_requests,
        fire_threshold=IMBALANCE[0],
        clear_threshold=IMBALANCE[1],
        summary=f"{busiest} decodes a mean batch of {most:.1f}, all workers {mean:.1f}",
    )


def signature_reading(parts: list[SeriesTotals]) -> Reading | None:
    """Read which share of the requests that a version could have placed had no signature."""
    totals = sum_totals(parts) if parts else SeriesTotals()
    if totals.n_requests < LEAST_REQUESTS:
        return None
    share = totals.n_without_signature / totals.n_requests
    return Reading(
        rule=RuleName.SIGNATURE_MISSING,
        value=share,
        n=totals.n_requests,
        fire_threshold=MISSING_SHARE[0],
        clear_threshold=MISSING_SHARE[1],
        summary=f"{share:.1%} of the requests of the last minute were routed by load alone",
    )


def refit_reading(newest: CalibrationRunRow | None, now: datetime) -> Reading | None:
    """Read whether the newest refit failed."""
    if newest is None:
        return None
    has_failed = newest.state == RunState.FAILED and newest.created_at > now - FAILURE_COUNTS
    summary = (
        f"refit {newest.id} has {newest.state}: {newest.error}" if has_failed else "the refit did not fail"
    )
    return _yes_or_no(RuleName.REFIT_FAILED, "fleet", has_failed, summary)


def regression_readings(session: ReadSession, fleet: str, now: datetime) -> list[Reading]:
    """Read for each cluster by how much its median TPOT is above control at 95 %; only in an experiment."""
    row = running_experiments.find_running(session, fleet)
    if row is None:
        return []
    span = experiments.span_of(row)
    by_cluster: defaultdict[str, defaultdict[int, list[SeriesTotals]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for series in metric_rows.read_experiment(session, fleet, row.id, SubjectKind.CLUSTER):
        by_cluster[series.key.subject][series.key.experiment_window].append(series.totals)
    readings = []
    for cluster, parts in sorted(by_cluster.items()):
        windows = measure_windows(span, {index: sum_totals(found) for index, found in parts.items()})
        log_ratios = [
            math.log(treatment.tpot_p50_ms / control.tpot_p50_ms)
            for treatment, control in complete_pairs(span, windows, now)
            if treatment.tpot_p50_ms and control.tpot_p50_ms
        ]
        readings.append(regression_reading(cluster, log_ratios))
    return readings


def regression_reading(cluster: str, log_ratios: list[float]) -> Reading:
    """Read the low end of the interval of one cluster's change; no data under six pairs."""
    result = sign_flip_test(np.array(log_ratios, dtype=np.float64))
    low = None if result.interval is None else 100 * math.expm1(result.interval[0])
    mean = result.change_percent
    return Reading(
        rule=RuleName.TPOT_REGRESSION,
        subject=f"cluster {cluster}",
        value=low if low is not None and math.isfinite(low) else None,
        n=result.n_pairs,
        fire_threshold=REGRESSION_PERCENT[0],
        clear_threshold=REGRESSION_PERCENT[1],
        summary=f"median TPOT of cluster {cluster} is {mean or 0.0:+z.1f} % against {CONTROL_ARM}, "
        f"{TREATMENT_ARM} at least {low or 0.0:+z.1f} % at 95 %",
    )


def _recent_totals(session: ReadSession, fleet: str, now: datetime) -> dict[tuple[str, int], SeriesTotals]:
    """Totals of the last minute by worker and version number, from the routers' own windows."""
    window_seconds = int(get_fleet(session, fleet).metrics_window_seconds)
    found = metric_rows.read_windows(
        session, fleet, SubjectKind.WORKER, shortest_seconds=1, longest_seconds=max(59, window_seconds),
        since=now - WINDOW, until=now + WINDOW,
    )  # fmt: skip
    parts: defaultdict[tuple[str, int], list[SeriesTotals]] = defaultdict(list)
    for series in found:
        parts[series.key.subject, series.key.version_number].append(series.totals)
    return {key: sum_totals(each) for key, each in parts.items()}


def _by_worker(totals_of: Mapping[tuple[str, int], SeriesTotals]) -> dict[str, SeriesTotals]:
    parts: defaultdict[str, list[SeriesTotals]] = defaultdict(list)
    for (worker, _), totals in totals_of.items():
        parts[worker].append(totals)
    return {worker: sum_totals(each) for worker, each in parts.items()}


def _yes_or_no(rule: RuleName, subject: str, is_so: bool, summary: str) -> Reading:
    return Reading(
        rule=rule,
        subject=subject,
        value=1.0 if is_so else 0.0,
        fire_threshold=YES_OR_NO[0],
        clear_threshold=YES_OR_NO[1],
        summary=summary,
    )
