"""Live metrics, sampled decisions, drift and experiments, as the API speaks of them."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricPoint:
    """One roll-up window of one series; latencies are None where nothing finished in it."""

    window_start: datetime
    window_seconds: int
    arm: str
    version_number: int | None
    worker_id: str | None
    cluster: int | None
    n_requests: int
    n_errors: int
    n_without_signature: int
    output_tokens: int
    tpot_p50_ms: float | None
    tpot_p99_ms: float | None
    ttft_p50_ms: float | None
    ttft_p99_ms: float | None
    active_experts: float | None
    random_active_experts: float | None
    predicted_active_experts: float | None
    mean_band_size: float | None
    mean_batch: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerUnion:
    """Distinct experts a decode step of one worker loads, by layer, over a time range.

    `random_by_layer` is what a random mix of the fleet's recent traffic would load at the same mean batch.
    """

    worker_id: str
    n_steps: int
    mean_batch: float
    active_by_layer: tuple[float, ...]
    random_by_layer: tuple[float, ...]
    observed_over_predicted: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledDecision:
    """Why one request went where it did."""

    request_id: str
    at: datetime
    arm: str
    version_number: int | None
    prefill_worker: str
    decode_worker: str
    cluster: int | None
    similarities: dict[str, float]
    band: tuple[str, ...]
    in_flight: dict[str, int]
    reason: str
    ttft_ms: float | None
    tpot_ms: float | None
    prompt_tokens: int
    output_tokens: int
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftMeasure:
    """One drift statistic with what it is judged against."""

    name: str
    verdict: str
    n: int
    value: float | None
    threshold: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftCheck:
    """One drift report: the three measures of one window against the active version's reference."""

    id: str
    at: datetime
    version_id: str
    version_number: int
    window_seconds: float
    measures: tuple[DriftMeasure, ...]
    refit_decision: str
    occupancy: tuple[int, ...]
    reference_occupancy: tuple[int, ...]


class ExperimentState(StrEnum):
    """Life of a switchback experiment."""

    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Change of one metric, treatment against control, in percent with a 95 % interval of two ends."""

    metric: str
    mean_percent: float | None
    interval_percent: tuple[float, ...] | None
    p_value: float | None
    n_pairs: int
    verdict: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentWindow:
    """One window of an experiment with the metrics of the requests that started after its washout."""

    index: int
    pair: int
    arm: str
    start: datetime
    n_requests: int
    tpot_p50_ms: float | None
    tpot_p99_ms: float | None
    ttft_p50_ms: float | None
    active_experts: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A switchback: the arms take turns over the whole pool in randomised pairs of windows."""

    id: str
    fleet: str
    state: ExperimentState
    treatment_policy: str
    treatment_version_number: int | None
    control_policy: str
    n_pairs: int
    n_pairs_done: int
    window_seconds: int
    washout_seconds: int
    seed: int
    starts_at: datetime
    ends_at: datetime
    actor: str
    reason: str
    effects: tuple[Effect, ...]
    windows: tuple[ExperimentWindow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartExperiment:
    """Command: start a switchback of the live settings against a control policy."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    reason: str
    control_policy: str = "join_shortest_queue"
    n_pairs: int = 8
    window_seconds: int = 60
    washout_seconds: int = 20
    seed: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StopExperiment:
    """Command: end an experiment early; its windows so far are kept."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryReceipt:
    """What became of a batch: `out_of_time` counts what came over ten minutes late, or from the future."""

    accepted_events: int
    accepted_blobs: int
    duplicates: int
    out_of_time: int
