"""Discrete-event simulation of a prefill pool, the KV transfer and a pool of decode workers (ours).

Prefill is first come, first served on `n_prefill_workers`. A decode worker is chosen when prefill ends, by
the same `choose_worker` that the router calls; then the KV cache travels, and the request joins its worker's
batch at the end of the running step. Expert use enters as expectations, so a run has no noise of its own
beyond the arrivals. There is no KV limit and no preemption.
"""

import heapq
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from eldr_runtime.array_types import Floats, Floats32, Ints
from eldr_runtime.centroid_version import CentroidVersion
from eldr_runtime.errors import InvalidValue
from eldr_runtime.expert_use import HIGHEST_PROBABILITY
from eldr_runtime.latency_model import LatencyModel, LatencyPreset
from eldr_runtime.policies.choice import PolicyName, PolicySettings
from eldr_runtime.simulation.decode_worker import DecodeWorker, RequestLog, RequestTable
from eldr_runtime.simulation.workload import RequestProfiles, Workload
from eldr_runtime.worker_choice import RoutingTable, build_routing_table, choose_worker
from eldr_runtime.worker_load import PoolView

# policies that no similarity can sway: their requests are not scored, which changes nothing but the time
BY_LOAD_ALONE = frozenset(
    {
        PolicyName.ROUND_ROBIN,
        PolicyName.RANDOM,
        PolicyName.JOIN_SHORTEST_QUEUE,
        PolicyName.POWER_OF_TWO_CHOICES,
        PolicyName.DOMAIN,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """Workers and speeds; the defaults of prefill and transfer are assumptions, not measurements."""

    latency: LatencyModel
    kv_bytes_per_token: float
    n_decode_workers: int = 16
    n_prefill_workers: int = 8
    prefill_base_ms: float = 30.0
    prefill_ms_per_token: float = 0.03
    transfer_base_ms: float = 6.0
    transfer_bytes_per_second: float = 40e9

    def __post_init__(self) -> None:
        for name in ("n_decode_workers", "n_prefill_workers"):
            if not 1 <= getattr(self, name) <= 100_000:
                raise InvalidValue(field=name, value=getattr(self, name), limit="an integer from 1 to 100000")
        for name in ("kv_bytes_per_token", "prefill_base_ms", "prefill_ms_per_token", "transfer_base_ms"):
            if not 0 <= getattr(self, name) < np.inf:
                raise InvalidValue(field=name, value=getattr(self, name), limit="a number of at least 0")
        if not self.transfer_bytes_per_second > 0:
            value = self.transfer_bytes_per_second
            raise InvalidValue(field="transfer_bytes_per_second", value=value, limit="above 0")
        if not self.latency.t0_ms > 0:
            raise InvalidValue(field="t0_ms", value=self.latency.t0_ms, limit="above 0 to simulate steps")

    @classmethod
    def of_preset(
        cls, preset: LatencyPreset, *, n_decode_workers: int = 16, n_prefill_workers: int = 8
    ) -> "ClusterSettings":
        """Make a cluster of a preset's model and GPU."""
        return cls(
            latency=preset.model,
            kv_bytes_per_token=preset.kv_bytes_per_token,
            n_decode_workers=n_decode_workers,
            n_prefill_workers=n_prefill_workers,
        )

    @property
    def worker_ids(self) -> tuple[str, ...]:
        """Ids of the decode workers, sorted."""
        return tuple(f"decode-{number:05d}" for number in range(self.n_decode_workers))

    def prefill_ms(self, prompt_tokens: Ints) -> Floats:
        """Return the time of each prompt on a prefill worker."""
        return self.prefill_base_ms + self.prefill_ms_per_token * prompt_tokens.astype(np.float64)

    def transfer_ms(self, prompt_tokens: Ints) -> Floats:
        """Return the time each prompt's KV cache travels."""
        seconds = prompt_tokens.astype(np.float64) * (
            self.kv_bytes_per_token / self.transfer_bytes_per_second
        )
        return self.transfer_base_ms + 1e3 * seconds


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Traffic:
    """A workload with what routing and decoding need of its profiles.

    Attributes
    ----------
    requests : lengths, profiles and decode use
    signatures : float32 (n_profiles, n_features) in the space of `version`, or None without one
    """

    workload: Workload
    requests: RequestTable
    version: CentroidVersion | None
    signatures: Floats32 | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SimulationResult:
    """One run, request by request; every array is `(n_requests,)` in the order of arrival.

    Attributes
    ----------
    arrival_ms, finish_ms : float64
    ttft_ms : float64, arrival to the end of the request's first decode step
    tpot_ms : float64, `(last - first token) / (output_tokens - 1)`; NaN with a single token
    worker_of : int64, index into `worker_ids`
    batch, active_experts : float64, means over the request's own decode steps
    load_ratio : float64, largest over mean in-flight load at its choice, itself included
    in_flight_at_end : int64 (n_workers,), zero if the accounting is right
    """

    worker_ids: tuple[str, ...]
    arrival_ms: Floats
    finish_ms: Floats
    ttft_ms: Floats
    tpot_ms: Floats
    worker_of: Ints
    batch: Floats
    active_experts: Floats
    load_ratio: Floats
    in_flight_at_end: Ints


def prepare_traffic(
    workload: Workload, profiles: RequestProfiles, version: CentroidVersion | None
) -> Traffic:
    """Compute once what all policies share: signatures, and the probability of not using an expert."""
    shape = profiles.settings.shape
    if version is not None and version.shape != shape:
        raise InvalidValue(field="version.shape", value=version.shape, limit=f"that of the profiles, {shape}")
    not_used = 1 - np.minimum(profiles.decode_p, np.float32(HIGHEST_PROBABILITY))
    return Traffic(
        workload=workload,
        requests=RequestTable(
            profile_of=workload.profile_of.tolist(),
            prompt_tokens=workload.prompt_tokens.tolist(),
            output_tokens=workload.output_tokens.tolist(),
            not_used=not_used.reshape(len(profiles), -1),
            n_layers=shape.n_layers,
            n_experts=shape.n_experts,
        ),
        version=version,
        signatures=None if version is None else version.transform.apply(profiles.prefill_counts),
    )


def simulate(
    traffic: Traffic,
    settings: PolicySettings,
    cluster: ClusterSettings,
    *,
    seed: int,
    label_shares: Mapping[str, float] | None = None,
) -> SimulationResult:
    """Serve the traffic with one policy, until the last request has finished.

    Parameters
    ----------
    seed : settles the policy's draws; runs of other policies on the same traffic are paired with this one
    label_shares : the calibration mix, for the `domain` oracle
    """
    version = None if settings.policy in BY_LOAD_ALONE else traffic.version
    table = build_routing_table(version, cluster.worker_ids, settings, label_shares=label_shares)
    run = _Run(traffic, table, cluster, np.random.default_rng([seed, 4]))
    run.drive(_prefill_ends(traffic.workload, cluster))
    return run.result()


class _Run:
    """The state of one simulation; times in ms from the start."""

    def __init__(
        self, traffic: Traffic, table: RoutingTable, cluster: ClusterSettings, rng: np.random.Generator
    ) -> None:
        n_requests = len(traffic.workload)
        self._traffic, self._table, self._rng = traffic, table, rng
        self._log = RequestLog.empty(n_requests)
        self._workers = [DecodeWorker(traffic.requests, cluster.latency, self._log) for _ in table.worker_ids]
        self._transfer_ms = cluster.transfer_ms(traffic.workload.prompt_tokens).tolist()
        self._in_flight = np.zeros(len(table.worker_ids), dtype=np.int64)
        self._n_in_flight = self._n_routed = 0
        self._worker_of = [-1] * n_requests
        self._load_ratio = [0.0] * n_requests
        # (time, order of creation, worker, request); request is -1 for a boundary of the worker
        self._events: list[tuple[float, int, int, int]] = []
        self._n_events = 0

    def drive(self, prefill_ends_ms: Floats) -> None:
        """Go through all events in the order of time."""
        events = self._events
        for request in np.argsort(prefill_ends_ms, kind="stable").tolist():
            end_ms = float(prefill_ends_ms[request])
            while events and events[0][0] < end_ms:
                self._handle(heapq.heappop(events))
            self._route(request, end_ms)
        while events:
            self._handle(heapq.heappop(events))

    def _route(self, request: int, now_ms: float) -> None:
        workload = self._traffic.workload
        signatures = None if self._table.centroids is None else self._traffic.signatures
        decision = choose_worker(
            None if signatures is None else signatures[self._traffic.requests.profile_of[request]],
            PoolView(worker_ids=self._table.worker_ids, in_flight=self._in_flight, n_routed=self._n_routed),
            self._table,
            self._rng,
            None if workload.labels is None else workload.labels[request],
        )
        self._in_flight[decision.index] += 1
        self._n_in_flight += 1
        self._n_routed += 1
        self._worker_of[request] = decision.index
        largest = max(*decision.in_flight, decision.in_flight[decision.index] + 1)
        self._load_ratio[request] = largest * len(self._workers) / self._n_in_flight
        self._push(now_ms + self._transfer_ms[request], decision.index, request)

    def _handle(self, event: tuple[float, int, int, int]) -> None:
        time_ms, _, index, request = event
        worker = self._workers[index]
        if request >= 0:
            if worker.ready(request, time_ms):
                self._push(worker.next_ms, index, -1)
            return
        if worker.next_ms != time_ms:
            return  # overtaken by an earlier boundary
        n_done = len(worker.reach_boundary())
        self._in_flight[index] -= n_done
        self._n_in_flight -= n_done
        if worker.batch:
            self._push(worker.next_ms, index, -1)

    def _push(self, time_ms: float, index: int, request: int) -> None:
        self._n_events += 1
        heapq.heappush(self._events, (time_ms, self._n_events, index, request))

    def result(self) -> SimulationResult:
        """Turn the log into times by request."""
        workload, log = self._traffic.workload, self._log
        arrival_ms = workload.arrival_seconds * 1e3
        first_token_ms, last_token_ms = np.array(log.first_token_ms), np.array(log.last_token_ms)
        later_tokens = (workload.output_tokens - 1).astype(np.float64)
        later_tokens[later_tokens == 0] = np.nan
        return SimulationResult(
            worker_ids=self._table.worker_ids,
            arrival_ms=arrival_ms,
            finish_ms=last_token_ms,
            ttft_ms=first_token_ms - arrival_ms,
            tpot_ms=(last_token_ms - first_token_ms) / later_tokens,
            worker_of=np.array(self._worker_of, dtype=np.int64),
            batch=np.array(log.batch_sum) / workload.output_tokens,
            active_experts=np.array(log.union_sum) / workload.output_tokens,
            load_ratio=np.array(self._load_ratio),
            in_flight_at_end=self._in_flight,
        )


def _prefill_ends(workload: Workload, cluster: ClusterSettings) -> Floats:
    """Return when each request leaves prefill, first come, first served: float64 `(n_requests,)`, ms."""
    free_at = [0.0] * min(cluster.n_prefill_workers, len(workload))
    ends = []
    lengths = cluster.prefill_ms(workload.prompt_tokens).tolist()
    for arrival_ms, length in zip((workload.arrival_seconds * 1e3).tolist(), lengths, strict=True):
        end = max(arrival_ms, free_at[0]) + length
        heapq.heapreplace(free_at, end)
        ends.append(end)
    return np.array(ends)
