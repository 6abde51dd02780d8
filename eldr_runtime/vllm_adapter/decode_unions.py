"""How many distinct experts the decode steps of a worker load: counted by step, shown on `/metrics`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from prometheus_client import REGISTRY, Counter, Histogram
from vllm.config import VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics, KVConnectorStats

from eldr_runtime.array_types import ExpertIds

_SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_NAMES = ("eldr_decode_steps", "eldr_decode_batch", "eldr_distinct_experts", "eldr_mixed_steps",
          "eldr_unknown_decode_steps", "eldr_decode_step_distinct_experts")  # fmt: skip


def distinct_experts(rows: ExpertIds, n_experts: int) -> NDArray[np.int64]:
    """Count the experts that a step loads.

    Parameters
    ----------
    rows
        uint8 or uint16 `(n_tokens, n_layers, top_k)`, all known.
    n_experts
        Experts a layer.

    Returns
    -------
    int64 `(n_layers,)`.

    Examples
    --------
    >>> distinct_experts(np.array([[[0, 2]], [[2, 3]]], dtype=np.uint8), n_experts=4)
    array([3])
    """
    n_layers = rows.shape[1]
    is_used = np.zeros((n_layers, n_experts), dtype=np.bool_)
    is_used[np.arange(n_layers)[None, :, None], rows] = True
    n_used: NDArray[np.int64] = np.count_nonzero(is_used, axis=1).astype(np.int64)
    return n_used


@dataclass
class UnionStats(KVConnectorStats):
    """What the steps since the last report loaded, in the form vLLM carries to its metrics page.

    `data` holds `steps`, `batch`, `mixed_steps` and `unknown_steps` (integers), `distinct` (a list by layer)
    and `means` (mean over the layers, one a step).
    """

    data: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.data:
            self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.data = {
            "steps": 0, "batch": 0, "mixed_steps": 0, "unknown_steps": 0, "distinct": [], "means": [],
        }  # fmt: skip

    def add_step(self, batch: int, distinct: NDArray[np.int64]) -> None:
        """Add a step that decoded and did nothing else."""
        self.data["steps"] += 1
        self.data["batch"] += batch
        self.data["distinct"] = _sum(self.data["distinct"], distinct.tolist())
        self.data["means"].append(float(distinct.mean()))

    def aggregate(self, other: KVConnectorStats) -> "UnionStats":
        """Add what another report says."""
        for name in ("steps", "batch", "mixed_steps", "unknown_steps"):
            self.data[name] += other.data[name]
        self.data["distinct"] = _sum(self.data["distinct"], other.data["distinct"])
        self.data["means"] = [*self.data["means"], *other.data["means"]]
        return self

    def reduce(self) -> dict[str, int | float]:
        """Return what vLLM prints on its log line."""
        steps = self.data["steps"]
        means = self.data["means"]
        return {
            "decode steps": steps,
            "mean batch": round(self.data["batch"] / steps, 1) if steps else 0,
            "mean distinct experts": round(float(np.mean(means)), 1) if means else 0,
        }

    def is_empty(self) -> bool:
        """Return whether nothing was counted."""
        return not any(self.data[name] for name in ("steps", "mixed_steps", "unknown_steps"))


class UnionMetrics(KVConnectorPromMetrics):
    """The counters on vLLM's `/metrics` page, and a histogram of distinct experts a step."""

    def __init__(
        self,
        vllm_config: VllmConfig,
        metric_types: Mapping[type, type],
        labelnames: Sequence[str],
        per_engine_labelvalues: Mapping[int, Sequence[object]],
    ) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        _forget_earlier_engines()
        labels = list(labelnames)
        self._labels = per_engine_labelvalues
        counter = metric_types[Counter]
        steps, batch, distinct, mixed, unknown, by_step = _NAMES
        self._steps = counter(steps, "Steps that decoded and did nothing else.", labels)
        self._batch = counter(batch, "Requests in those steps.", labels)
        self._distinct = counter(distinct, "Distinct experts those steps used, by layer.", [*labels, "layer"])
        self._mixed = counter(mixed, "Steps that decoded beside prompts; not in the others.", labels)
        self._unknown = counter(unknown, "Decode steps of unknown experts; not in the others.", labels)
        n_experts = vllm_config.model_config.get_num_experts()
        self._by_step = metric_types[Histogram](
            name=by_step, documentation="Distinct experts of a decode step, mean of the layers.",
            buckets=sorted({max(1, round(share * n_experts)) for share in _SHARES}), labelnames=labels,
        )  # fmt: skip

    def observe(self, transfer_stats_data: Mapping[str, Any], engine_idx: int = 0) -> None:
        """Take a report of one engine."""
        values = self._labels[engine_idx]
        for metric, name in (
            (self._steps, "steps"), (self._batch, "batch"),
            (self._mixed, "mixed_steps"), (self._unknown, "unknown_steps"),
        ):  # fmt: skip
            metric.labels(*values).inc(transfer_stats_data[name])
        for layer, n_distinct in enumerate(transfer_stats_data["distinct"]):
            self._distinct.labels(*values, str(layer)).inc(n_distinct)
        for mean in transfer_stats_data["means"]:
            self._by_step.labels(*values).observe(mean)


def _forget_earlier_engines() -> None:
    """Take the metrics of an engine made earlier in this process off the page, as vLLM does with its own."""
    for collector in set(REGISTRY._collector_to_names):
        if getattr(collector, "_name", None) in _NAMES:
            REGISTRY.unregister(collector)


def _sum(left: Sequence[int], right: Sequence[int]) -> list[int]:
    if not left or not right:
        return list(left or right)
    return [one + other for one, other in zip(left, right, strict=True)]
