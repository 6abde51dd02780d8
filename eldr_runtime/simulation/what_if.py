"""What a policy would do on generated traffic: fit centroids, then compare on requests the fit never saw."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from eldr_runtime.calibration import CalibrationSettings, fit_version
from eldr_runtime.centroid_version import CentroidVersion
from eldr_runtime.errors import InvalidValue
from eldr_runtime.policies.choice import PolicyName, PolicySettings
from eldr_runtime.simulation.replay import PolicyComparison, Scenario, compare_policies
from eldr_runtime.simulation.workload import calibration_trace, generate_profiles
from eldr_runtime.simulation.workload_figures import prefill_decode_correlation, same_topic_reduction_percent

BASELINE = PolicyName.JOIN_SHORTEST_QUEUE
NEED_CENTROIDS = frozenset({PolicyName.ELDR, PolicyName.ELDR_CAPPED})
SEEDS_APART = 1000
FIGURE_PROFILES = 400
FIGURE_BATCH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """All that one comparison is made of.

    `seed` draws the model's topics and is what all other seeds come from: that of the calibration's
    requests, and those of each of `n_seeds` runs.
    """

    scenario: Scenario
    policies: tuple[PolicySettings, ...]
    n_calibration_requests: int = 1000
    seed: int = 1
    n_seeds: int = 6

    def __post_init__(self) -> None:
        if not 1 <= self.n_seeds < SEEDS_APART:
            limit = f"an integer from 1 to {SEEDS_APART - 1}"
            raise InvalidValue(field="n_seeds", value=self.n_seeds, limit=limit)
        n_workers = self.scenario.cluster.n_decode_workers
        if self.n_calibration_requests < max(n_workers, self.scenario.workload.n_topics, 2):
            limit = (
                f"at least one for each of {n_workers} workers and {self.scenario.workload.n_topics} topics"
            )
            raise InvalidValue(field="calibration_requests", value=self.n_calibration_requests, limit=limit)

    @property
    def calibration_seed(self) -> int:
        """Seed of the calibration requests, which no run shares."""
        return self.seed * SEEDS_APART

    @property
    def run_seeds(self) -> tuple[int, ...]:
        """Seeds of the runs."""
        return tuple(self.calibration_seed + 1 + run for run in range(self.n_seeds))


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfResult:
    """The comparison, the version it routed by, and how much the workload had to exploit.

    `same_topic_reduction_percent` is None where no topic has 16 requests among the 400 it is measured on.
    """

    comparison: PolicyComparison
    version: CentroidVersion | None
    same_topic_reduction_percent: float | None
    prefill_decode_correlation: float


def run_what_if(what_if: WhatIf, on_progress: Callable[[int, int], None] | None = None) -> WhatIfResult:
    """Fit on one sample of requests and compare the policies on others; progress counts the runs."""
    scenario, names = what_if.scenario, {settings.policy for settings in what_if.policies}
    version, label_shares = None, None
    if names & (NEED_CENTROIDS | {PolicyName.DOMAIN}):
        n_requests, seed = what_if.n_calibration_requests, what_if.calibration_seed
        trace = calibration_trace(scenario.workload, n_requests=n_requests, seed=seed)
        label_shares = {name: n / len(trace) for name, n in sorted(Counter(trace.labels).items())}
        if names & NEED_CENTROIDS:
            version = fit_version(trace, CalibrationSettings(n_clusters=scenario.cluster.n_decode_workers))
    comparison = compare_policies(
        scenario,
        what_if.policies,
        version,
        seeds=what_if.run_seeds,
        baseline=BASELINE,
        label_shares=label_shares,
        on_progress=on_progress,
    )
    reduction, correlation = _workload_figures(what_if)
    return WhatIfResult(
        comparison=comparison,
        version=version,
        same_topic_reduction_percent=reduction,
        prefill_decode_correlation=correlation,
    )


def _workload_figures(what_if: WhatIf) -> tuple[float | None, float]:
    settings = what_if.scenario.workload
    sample = replace(settings, n_profiles=max(FIGURE_PROFILES, settings.n_topics))
    profiles = generate_profiles(sample, seed=what_if.calibration_seed)
    correlation = prefill_decode_correlation(profiles)
    try:
        return same_topic_reduction_percent(profiles, batch_size=FIGURE_BATCH), correlation
    except InvalidValue:  # too many topics for a batch of one
        return None, correlation
