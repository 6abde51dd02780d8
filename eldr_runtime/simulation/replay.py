"""Policies compared on the same traffic, over seeds, with paired intervals (ours).

Each seed draws new requests and new arrivals, and every policy serves the same ones, so a policy's change is
taken within a seed. The model and its topics, and the centroids fitted before, are the same in all seeds: an
interval speaks of other requests of this traffic, not of another model.

What counts is chosen by arrival alone, equally for all policies of a seed. Requests that arrive within twice
the median stay (of the policy with the longest) are warm-up: the workers were filling. Requests that arrive
within the longest stay of any request under any policy before the last arrival are left out: arrivals end
while they run. All the rest finish while traffic still comes; a choice by completion would have favoured
short times.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from eldr_runtime.array_types import Bools, Floats
from eldr_runtime.centroid_version import CentroidVersion
from eldr_runtime.errors import InvalidValue
from eldr_runtime.policies.choice import PolicyName, PolicySettings
from eldr_runtime.simulation.cluster import (
    ClusterSettings,
    SimulationResult,
    Traffic,
    prepare_traffic,
    simulate,
)
from eldr_runtime.simulation.workload import WorkloadSettings, generate_profiles, generate_workload

CONFIDENCE = 0.95
WARM_UP_STAYS = 2.0
FEWEST_MEASURED = 100
INTERVAL_METHOD = "paired over seeds, Student t"
FEWEST_PROFILES, MOST_PROFILES = 1_000, 8_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFigures:
    """What one run, or the mean over runs, of one policy came to."""

    tpot_median_ms: float
    tpot_p99_ms: float
    ttft_median_ms: float
    ttft_p99_ms: float
    mean_batch: float
    mean_active_experts: float
    mean_load_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedChange:
    """Change against the baseline, %; the interval is None with a single seed."""

    mean_percent: float
    interval: tuple[float, float] | None
    by_seed: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRow:
    """One policy: means over seeds, and its changes against the baseline."""

    settings: PolicySettings
    figures: PolicyFigures
    tpot_median_change: PairedChange
    tpot_p99_change: PairedChange
    ttft_median_change: PairedChange


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyComparison:
    """All policies on the same traffic; `n_measured` counts the requests that counted, by seed."""

    baseline: PolicyName
    rows: tuple[PolicyRow, ...]
    seeds: tuple[int, ...]
    n_requests: int
    n_measured: tuple[int, ...]
    interval_method: str = INTERVAL_METHOD
    confidence: float = CONFIDENCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What is offered to which cluster."""

    workload: WorkloadSettings
    cluster: ClusterSettings
    n_requests: int
    rate_per_second: float

    def __post_init__(self) -> None:
        if self.n_requests < FEWEST_MEASURED:
            limit = f"at least {FEWEST_MEASURED}"
            raise InvalidValue(field="n_requests", value=self.n_requests, limit=limit)
        if not 0 < self.rate_per_second < np.inf:
            raise InvalidValue(field="rate_per_second", value=self.rate_per_second, limit="a number above 0")


def compare_policies(
    scenario: Scenario,
    policies: Sequence[PolicySettings],
    version: CentroidVersion | None,
    *,
    seeds: Sequence[int],
    baseline: PolicyName = PolicyName.JOIN_SHORTEST_QUEUE,
    label_shares: Mapping[str, float] | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> PolicyComparison:
    """Run every policy on every seed's traffic.

    Parameters
    ----------
    policies : distinct by name; one of them is the baseline
    version : centroids for the locality policies, fitted on requests of other seeds
    seeds : distinct; each draws requests, arrivals and the policies' own draws
    label_shares : calibration mix, for the `domain` oracle
    on_progress : told the runs done and the runs in all
    """
    _check(policies, seeds, baseline)
    names = [settings.policy for settings in policies]
    by_seed: list[list[PolicyFigures]] = []
    n_measured = []
    for position, seed in enumerate(seeds):
        traffic = _draw_traffic(scenario, version, seed)
        results = []
        for column, settings in enumerate(policies, start=1):
            results.append(
                simulate(traffic, settings, scenario.cluster, seed=seed, label_shares=label_shares)
            )
            if on_progress is not None:
                on_progress(position * len(policies) + column, len(policies) * len(seeds))
        is_measured = measured_window(results)
        n_measured.append(int(np.count_nonzero(is_measured)))
        by_seed.append([figures_of(result, is_measured) for result in results])
    base = [runs[names.index(baseline)] for runs in by_seed]
    rows = [
        _row(settings, [runs[column] for runs in by_seed], base) for column, settings in enumerate(policies)
    ]
    return PolicyComparison(
        baseline=baseline,
        rows=tuple(rows),
        seeds=tuple(seeds),
        n_requests=scenario.n_requests,
        n_measured=tuple(n_measured),
    )


def enough_profiles(cluster: ClusterSettings, workload: WorkloadSettings, rate_per_second: float) -> int:
    """Return twice the requests that would be in flight with every expert active, within bounds of memory.

    So no request decodes beside a copy of itself; where the upper bound bites, some do, and unions come out
    too small for every policy.
    """
    slowest_ms = cluster.latency.t0_ms + cluster.latency.per_expert_ms * workload.shape.n_experts
    in_flight = rate_per_second * workload.output_tokens * slowest_ms / 1e3
    return int(min(max(2 * in_flight, FEWEST_PROFILES), MOST_PROFILES))


def measured_window(results: Sequence[SimulationResult]) -> Bools:
    """Choose the requests that count, the same for all results of one traffic: bool `(n_requests,)`.

    See the head of this module. Refuses traffic too short to leave `FEWEST_MEASURED` requests.
    """
    arrival_ms = results[0].arrival_ms
    stays_ms = [result.finish_ms - result.arrival_ms for result in results]
    longest_ms = max(float(stay_ms.max()) for stay_ms in stays_ms)
    warm_up_ms = WARM_UP_STAYS * max(float(np.median(stay_ms)) for stay_ms in stays_ms)
    start_ms, end_ms = arrival_ms[0] + warm_up_ms, arrival_ms[-1] - longest_ms
    is_measured: Bools = (arrival_ms >= start_ms) & (arrival_ms <= end_ms)
    n_measured = int(np.count_nonzero(is_measured))
    if n_measured < FEWEST_MEASURED:
        span, needed = (arrival_ms[-1] - arrival_ms[0]) / 1e3, (warm_up_ms + longest_ms) / 1e3
        limit = (
            f"enough for {FEWEST_MEASURED} between warm-up and end: arrivals span {span:.1f} s, warm-up and "
            f"end take {needed:.1f} s, as a request stays up to {longest_ms / 1e3:.1f} s; or lower the rate"
        )
        raise InvalidValue(field="n_requests", value=len(arrival_ms), limit=limit)
    return is_measured


def figures_of(result: SimulationResult, is_measured: Bools) -> PolicyFigures:
    """Summarise the requests that count; requests of a single token have no TPOT."""
    tpot_ms = result.tpot_ms[is_measured]
    tpot_ms = tpot_ms[np.isfinite(tpot_ms)]
    if tpot_ms.size == 0:
        raise InvalidValue(field="output_tokens", value=1, limit="at least 2 to have a time per output token")
    ttft_ms = result.ttft_ms[is_measured]
    return PolicyFigures(
        tpot_median_ms=float(np.median(tpot_ms)),
        tpot_p99_ms=float(np.quantile(tpot_ms, 0.99)),
        ttft_median_ms=float(np.median(ttft_ms)),
        ttft_p99_ms=float(np.quantile(ttft_ms, 0.99)),
        mean_batch=float(result.batch[is_measured].mean()),
        mean_active_experts=float(result.active_experts[is_measured].mean()),
        mean_load_ratio=float(result.load_ratio[is_measured].mean()),
    )


def paired_change(values: Sequence[float], baseline: Sequence[float]) -> PairedChange:
    """Return the mean change in % over paired runs, with its Student t interval.

    Examples
    --------
    >>> change = paired_change([9.0, 8.0], [10.0, 10.0])
    >>> round(change.mean_percent, 1), [round(limit, 1) for limit in change.interval]
    (-15.0, [-78.5, 48.5])
    """
    changes: Floats = 100.0 * (np.asarray(values) / np.asarray(baseline) - 1.0)
    mean = float(changes.mean())
    interval = None
    if len(changes) > 1:
        error = float(changes.std(ddof=1)) / len(changes) ** 0.5
        half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, len(changes) - 1)) * error
        interval = (mean - half, mean + half)
    return PairedChange(mean_percent=mean, interval=interval, by_seed=tuple(changes.tolist()))


def _draw_traffic(scenario: Scenario, version: CentroidVersion | None, seed: int) -> Traffic:
    profiles = generate_profiles(scenario.workload, seed=seed)
    workload = generate_workload(
        profiles, n_requests=scenario.n_requests, rate_per_second=scenario.rate_per_second, seed=seed
    )
    return prepare_traffic(workload, profiles, version)


def _row(
    settings: PolicySettings, runs: Sequence[PolicyFigures], baseline: Sequence[PolicyFigures]
) -> PolicyRow:
    def change(field: str) -> PairedChange:
        return paired_change([getattr(run, field) for run in runs], [getattr(run, field) for run in baseline])

    means = {name: float(np.mean([getattr(run, name) for run in runs])) for name in PolicyFigures.__slots__}
    return PolicyRow(
        settings=settings,
        figures=PolicyFigures(**means),
        tpot_median_change=change("tpot_median_ms"),
        tpot_p99_change=change("tpot_p99_ms"),
        ttft_median_change=change("ttft_median_ms"),
    )


def _check(policies: Sequence[PolicySettings], seeds: Sequence[int], baseline: PolicyName) -> None:
    names = [settings.policy for settings in policies]
    if len(set(names)) != len(names):
        raise InvalidValue(field="policies", value=[name.value for name in names], limit="distinct")
    if baseline not in names:
        limit = f"one of the compared: {', '.join(names)}"
        raise InvalidValue(field="baseline", value=baseline.value, limit=limit)
    if not seeds or len(set(seeds)) != len(seeds):
        raise InvalidValue(field="seeds", value=list(seeds), limit="distinct, at least one")
