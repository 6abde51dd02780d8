"""Replay recent requests through a policy at a steady number in flight: what each worker would load."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eldr_runtime.array_types import Floats, Floats32, Ints
from eldr_runtime.centroid_version import CentroidVersion
from eldr_runtime.expert_use import expected_union
from eldr_runtime.policies.choice import PolicySettings
from eldr_runtime.worker_choice import build_routing_table, choose_worker
from eldr_runtime.worker_load import PoolView

# A look at the pool each time this share of it has changed.
RENEWED_SHARE = 0.25


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecentTraffic:
    """Recent requests in the order they came.

    Parameters
    ----------
    signatures
        float32 `(n_requests, n_features)`.
    use
        float32 `(n_requests, n_layers, n_experts)`: share of decode steps that use each expert.
    kv_tokens
        float64 `(n_requests,)`: KV tokens in the middle of their decode.
    """

    signatures: Floats32
    use: Floats32
    kv_tokens: Floats

    def __len__(self) -> int:
        return len(self.signatures)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReplayedSteps:
    """What a replay found; the arrays, float64 `(n_steps,)`, have one entry a worker and look at the pool."""

    similarity_kept_share: float
    load_max_over_mean: float
    unions: Floats
    batches: Floats
    kv_tokens: Floats


def replay_traffic(
    traffic: RecentTraffic,
    version: CentroidVersion,
    worker_ids: Sequence[str],
    settings: PolicySettings,
    *,
    n_in_flight: int,
    seed: int = 1,
) -> ReplayedSteps:
    """Route requests in turn; with `n_in_flight` on the workers the oldest leaves as the next one comes."""
    table = build_routing_table(version, worker_ids, settings)
    rng = np.random.default_rng(seed)
    loads = np.zeros(len(table.worker_ids), dtype=np.int64)
    present: deque[tuple[int, int]] = deque()
    kept: list[float] = []
    looks: list[tuple[Ints, Ints]] = []
    every = max(1, round(RENEWED_SHARE * n_in_flight))
    for request in range(len(traffic)):
        if len(present) == n_in_flight:
            loads[present.popleft()[1]] -= 1
        pool = PoolView(worker_ids=table.worker_ids, in_flight=loads.copy(), n_routed=request)
        decision = choose_worker(traffic.signatures[request], pool, table, rng)
        loads[decision.index] += 1
        present.append((request, decision.index))
        if decision.similarities is not None and decision.similarities.max() > 0:
            kept.append(float(decision.similarities[decision.index] / decision.similarities.max()))
        if len(present) == n_in_flight and request % every == 0:
            pairs = np.array(present, dtype=np.int64)
            looks.append((pairs[:, 0], pairs[:, 1]))
    return _summarise(traffic, looks, kept, len(table.worker_ids))


def _summarise(
    traffic: RecentTraffic, looks: list[tuple[Ints, Ints]], kept: list[float], n_workers: int
) -> ReplayedSteps:
    steps: list[tuple[float, float, float]] = []
    imbalances = []
    for requests, workers in looks:
        loads = np.bincount(workers, minlength=n_workers)
        imbalances.append(loads.max() / loads.mean())
        for worker in np.flatnonzero(loads):
            batch = requests[workers == worker]
            steps.append((expected_union(traffic.use[batch]), len(batch), traffic.kv_tokens[batch].sum()))
    unions, batches, kv_tokens = np.array(steps, dtype=np.float64).reshape(-1, 3).T
    return ReplayedSteps(
        similarity_kept_share=float(np.mean(kept)) if kept else 0.0,
        load_max_over_mean=float(np.mean(imbalances)),
        unions=unions,
        batches=batches,
        kv_tokens=kv_tokens,
    )
