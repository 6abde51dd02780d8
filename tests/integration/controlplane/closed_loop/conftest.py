"""What routers of the fleet of 3 layers, 8 experts and top 2 report."""

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from eldr_runtime.count_codec import ExpertCounts, encode_counts
from eldr_runtime.latency_histogram import LatencyHistogram
from eldr_runtime.model_shape import ModelShape
from eldr_runtime.routing_config import RoutingConfig

SHAPE = ModelShape(model="toy/moe", n_layers=3, n_experts=8, top_k=2)
TOKENS = 10


def histogram(value_ms: float, n: int) -> str:
    found = LatencyHistogram()
    for _ in range(n):
        found.record_ms(value_ms)
    return found.to_base64()


def even_counts(topic: int, tokens: int = TOKENS) -> dict[str, Any]:
    """Counts of a request that uses the four experts of its topic evenly."""
    counts = np.zeros(SHAPE.counts_shape, dtype=np.uint32)
    counts[:, 4 * topic : 4 * topic + 4] = tokens // 2
    return encode_counts(ExpertCounts(shape=SHAPE, counts=counts, tokens=tokens, covered=tokens))


@dataclass
class Telemetry:
    """Makes wire messages with sensible values, each overridable."""

    clock: Any

    def event(
        self,
        request_id: str,
        *,
        topic: int = 0,
        worker: str = "decode-0",
        seconds_ago: float = 1,
        **values: Any,
    ) -> dict[str, Any]:
        at = self.clock.now - timedelta(seconds=seconds_ago)
        return {
            "v": 1,
            "request_id": request_id,
            "at": at.isoformat(),
            "arm": "live",
            "generation": 1,
            "version": None,
            "prefill_worker": "prefill-0",
            "decode_worker": worker,
            "cluster": topic,
            "similarities": {"decode-0": 0.9, "decode-1": 0.5},
            "band": ["decode-0"],
            "in_flight": {"decode-0": 3, "decode-1": 2},
            "reason": "within_band",
            "ttft_ms": 150.0,
            "tpot_ms": 20.0,
            "prompt_tokens": TOKENS,
            "output_tokens": 2 * TOKENS,
            "outcome": "completed",
            "counts": even_counts(topic),
            "decode_counts": even_counts(topic, 2 * TOKENS),
            "decode_steps": 2 * TOKENS,
        } | values

    def row(self, **values: Any) -> dict[str, Any]:
        n_requests = values.pop("n_requests", 3)
        key = {
            "worker": values.pop("worker", "decode-0"),
            "cluster": values.pop("cluster", None),
            "version": values.pop("version", None),
            "arm": values.pop("arm", "live"),
        }
        return {
            "key": key,
            "n_requests": n_requests,
            "n_errors": 0,
            "n_without_signature": 0,
            "output_tokens": 20 * n_requests,
            "band_size_sum": 2 * n_requests,
            "ttft_histogram": histogram(values.pop("ttft_ms", 150.0), n_requests),
            "tpot_histogram": histogram(values.pop("tpot_ms", 20.0), n_requests),
            "active_experts": {"n_steps": 100, "sum_by_layer": [600.0, 600.0, 600.0], "batch_sum": 400.0},
        } | values

    def blob(
        self,
        *,
        seconds_ago: float = 10,
        sequence: int = 0,
        experiment_window: int = 7,
        is_washout: bool = False,
        rows: list[dict[str, Any]] | None = None,
        **values: Any,
    ) -> dict[str, Any]:
        start = int((self.clock.now - timedelta(seconds=seconds_ago)).timestamp()) // 10 * 10
        at = self.clock.now.fromtimestamp(start, self.clock.now.tzinfo)
        return {
            "v": 1,
            "router_id": "router-0",
            "window_start": at.isoformat(),
            "window_seconds": 10,
            "experiment_window": experiment_window,
            "sequence": sequence,
            "is_washout": is_washout,
            "rows": [self.row(**values)] if rows is None else rows,
        }

    @staticmethod
    def arm_of(config: dict[str, Any], index: int) -> str:
        """The arm a router runs in a window."""
        snapshot = RoutingConfig.from_json(json.dumps(config))
        return snapshot.arm_at(index * snapshot.arm_schedule.window_seconds).arm


@pytest.fixture
def telemetry(control_plane: Any) -> Telemetry:
    return Telemetry(clock=control_plane.clock)
