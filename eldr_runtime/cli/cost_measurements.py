"""What fitting and routing cost, measured: the numbers behind `eldr bench`."""

import json
import multiprocessing
import resource
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from eldr_runtime.array_types import Floats, Floats32
from eldr_runtime.balanced_kmeans import BalancedSphericalKMeans
from eldr_runtime.calibration import CalibrationSettings, CalibrationStage, fit_version
from eldr_runtime.count_codec import ExpertCounts, encode_counts
from eldr_runtime.expert_trace import ExpertTrace, count_topk
from eldr_runtime.model_shape import ModelShape
from eldr_runtime.policies.choice import PolicyName, PolicySettings
from eldr_runtime.simulation.request_profiles import calibration_trace
from eldr_runtime.simulation.workload_settings import WorkloadSettings
from eldr_runtime.trace_files import load_trace
from eldr_runtime.worker_choice import build_routing_table, choose_worker
from eldr_runtime.worker_load import InFlightCounter, InFlightLease

TOPIC_SHARE = 0.5  # of a generated signature's direction that its topic gives, the rest is its own
CHUNK_ROWS = 10_000  # keeps the generator's temporaries small beside the rows themselves
IN_FLIGHT_PER_WORKER = 12
KIB = 1024

_Size = TypeVar("_Size")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One measured number beside what it should be; `measured` None says it was not measured."""

    what: str
    unit: str
    measured: float | None
    target: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FitSize:
    """Size of one fit from a trace."""

    n_requests: int = 1000
    n_layers: int = 48
    n_experts: int = 128
    top_k: int = 8
    n_clusters: int = 16
    n_pairs: int = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedFit:
    """A fit from the trace in a pack."""

    pack: Path
    n_clusters: int = 8
    n_pairs: int = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSize:
    """Size of one clustering of signatures."""

    n_requests: int = 100_000
    n_features: int = 6144
    n_clusters: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSize:
    """Size of the per-request work."""

    n_features: int = 6144
    n_workers: tuple[int, ...] = (16, 256)
    policies: tuple[PolicyName, ...] = (PolicyName.ELDR, PolicyName.ELDR_CAPPED)
    n_decisions: int = 5000
    n_tokens: int = 1000
    n_layers: int = 48
    n_experts: int = 128
    top_k: int = 8
    n_repeats: int = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class FitCost:
    """Seconds of each stage of a fit, and the peak memory of the process that ran it."""

    seconds: float
    stage_seconds: tuple[tuple[str, float], ...]
    peak_mib: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterCost:
    """Seconds of a clustering, how many rounds it took, and the peak memory of the process that ran it."""

    seconds: float
    n_iterations: int
    peak_mib: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HasCentroids:
    """As much of a centroid version as routing reads."""

    centroids: Floats32
    content_hash: str


def measure_fit(size: FitSize) -> FitCost:
    """Fit weights, layer mask and clusters of a generated trace in a process of its own."""
    return _in_own_process(_fit, size)


def measure_recorded_fit(fit: RecordedFit) -> FitCost:
    """Fit weights, layer mask and clusters of a recorded trace in a process of its own."""
    return _in_own_process(_fit_recorded, fit)


def measure_clustering(size: ClusterSize) -> ClusterCost:
    """Cluster generated signatures in a process of its own."""
    return _in_own_process(_cluster, size)


def measure_decision_us(policy: PolicyName, n_workers: int, size: RouteSize) -> Floats:
    """Time a policy's routing decisions one by one.

    Returns
    -------
    float64 (n_decisions,), microseconds
    """
    rng = np.random.default_rng(1)
    version = HasCentroids(centroids=_topic_rows(n_workers, size.n_features, 16, rng), content_hash="0" * 64)
    ids = [f"decode-{worker:03d}" for worker in range(n_workers)]
    table = build_routing_table(version, ids, PolicySettings(policy=policy))
    counter = InFlightCounter()
    signatures = _topic_rows(256, size.n_features, 16, rng)
    elapsed_us = np.empty(size.n_decisions)
    leases: deque[InFlightLease] = deque()
    for decision in range(size.n_decisions):
        signature = signatures[decision % len(signatures)]
        pool = counter.view(table.worker_ids)
        started = time.perf_counter_ns()
        chosen = choose_worker(signature, pool, table, rng)
        elapsed_us[decision] = (time.perf_counter_ns() - started) / 1000
        leases.append(counter.acquire(chosen.worker_id))
        if len(leases) > IN_FLIGHT_PER_WORKER * n_workers:
            leases.popleft().release()
    return elapsed_us


def measure_counting_ms(size: RouteSize) -> Floats:
    """Time counting the experts of one prompt from the ids its tokens chose.

    Returns
    -------
    float64 (n_repeats,), milliseconds
    """
    topk = _random_topk(size, np.random.default_rng(1))
    elapsed_ms = np.empty(size.n_repeats)
    for repeat in range(size.n_repeats):
        started = time.perf_counter_ns()
        count_topk(topk, size.n_experts)
        elapsed_ms[repeat] = (time.perf_counter_ns() - started) / 1e6
    return elapsed_ms


def measure_wire_kib(size: RouteSize) -> float:
    """Return the KiB that the counts of one prompt take as JSON."""
    counts = count_topk(_random_topk(size, np.random.default_rng(1)), size.n_experts)
    shape = ModelShape(model="bench", n_layers=size.n_layers, n_experts=size.n_experts, top_k=size.top_k)
    message = encode_counts(
        ExpertCounts(shape=shape, counts=counts, tokens=size.n_tokens, covered=size.n_tokens, cached=0)
    )
    return len(json.dumps(message, separators=(",", ":"))) / KIB


def _in_own_process(work: Callable[[_Size], _Result], size: _Size) -> _Result:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=context) as pool:
        return pool.submit(work, size).result()


def _fit(size: FitSize) -> FitCost:
    shape = ModelShape(model="bench", n_layers=size.n_layers, n_experts=size.n_experts, top_k=size.top_k)
    trace = calibration_trace(WorkloadSettings(shape=shape), n_requests=size.n_requests, seed=1)
    return _timed_fit(trace, CalibrationSettings(n_clusters=size.n_clusters, n_pairs=size.n_pairs))


def _fit_recorded(fit: RecordedFit) -> FitCost:
    return _timed_fit(
        load_trace(fit.pack), CalibrationSettings(n_clusters=fit.n_clusters, n_pairs=fit.n_pairs)
    )


def _timed_fit(trace: ExpertTrace, settings: CalibrationSettings) -> FitCost:
    ended_at: dict[str, float] = {}

    def on_progress(stage: CalibrationStage, share: float) -> None:
        ended_at[stage.value] = time.perf_counter()

    started = time.perf_counter()
    fit_version(trace, settings, on_progress)
    seconds = time.perf_counter() - started
    ends = [started, *ended_at.values()]
    stages = tuple((name, ends[n + 1] - ends[n]) for n, name in enumerate(ended_at))
    return FitCost(seconds=seconds, stage_seconds=stages, peak_mib=_peak_mib())


def _cluster(size: ClusterSize) -> ClusterCost:
    rows = _topic_rows(size.n_requests, size.n_features, 3 * size.n_clusters, np.random.default_rng(1))
    started = time.perf_counter()
    settings = CalibrationSettings(n_clusters=size.n_clusters)
    fitted = BalancedSphericalKMeans(settings.n_clusters, n_starts=settings.n_starts).fit(rows)
    seconds = time.perf_counter() - started
    return ClusterCost(seconds=seconds, n_iterations=fitted.n_iterations_, peak_mib=_peak_mib())


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / KIB  # Linux counts it in KiB


def _topic_rows(n_rows: int, n_features: int, n_topics: int, rng: np.random.Generator) -> Floats32:
    """Return unit rows, none negative, each a topic's direction mixed with its own; float32."""
    topics = rng.standard_exponential((n_topics, n_features), dtype=np.float32)
    rows = np.empty((n_rows, n_features), dtype=np.float32)
    for start in range(0, n_rows, CHUNK_ROWS):
        chunk = rows[start : start + CHUNK_ROWS]
        rng.standard_exponential(out=chunk, dtype=np.float32)
        chunk += TOPIC_SHARE / (1 - TOPIC_SHARE) * topics[rng.integers(n_topics, size=len(chunk))]
        chunk /= np.linalg.norm(chunk, axis=1, keepdims=True)
    return rows


def _random_topk(size: RouteSize, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Return the distinct experts that each token chose; uint8 (n_tokens, n_layers, top_k)."""
    scores = rng.random((size.n_tokens, size.n_layers, size.n_experts), dtype=np.float32)
    chosen = np.argpartition(scores, size.top_k, axis=-1)[..., : size.top_k]
    return chosen.astype(np.uint8)
