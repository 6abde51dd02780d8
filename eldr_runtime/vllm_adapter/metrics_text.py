"""A vLLM worker's `/metrics` page: the few lines that the router reads."""

import math
import re
from collections.abc import Iterator

from eldr_runtime.serving_engine import EngineMetrics

RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
GENERATION_TOKENS = "vllm:generation_tokens_total"
KV_CACHE_USAGE = "vllm:kv_cache_usage_perc"
DECODE_STEPS = "eldr_decode_steps_total"
DECODE_BATCH = "eldr_decode_batch_total"
DISTINCT_EXPERTS = "eldr_distinct_experts_total"

_SINGLE = frozenset({RUNNING, WAITING, GENERATION_TOKENS, KV_CACHE_USAGE, DECODE_STEPS, DECODE_BATCH})
_LAYER = re.compile(r'\blayer="(\d{1,3})"')


def read_engine_metrics(text: str) -> EngineMetrics:
    r"""Read the counters the router wants; several engines add up, of their caches the fullest counts.

    What is missing, not a number or infinite stays None: a worker that does not say is not idle.

    Examples
    --------
    >>> page = 'vllm:num_requests_running{engine="0"} 3\neldr_distinct_experts_total{layer="0"} 40'
    >>> metrics = read_engine_metrics(page)
    >>> metrics.n_running, metrics.n_waiting, metrics.distinct_experts_sum
    (3.0, None, (40.0,))
    """
    sums: dict[str, float] = {}
    by_layer: dict[int, float] = {}
    for name, labels, value in _samples(text):
        if name in _SINGLE:
            known = sums.get(name, 0.0)
            sums[name] = max(known, value) if name == KV_CACHE_USAGE else known + value
        elif name == DISTINCT_EXPERTS and (layer := _LAYER.search(labels)) is not None:
            index = int(layer[1])
            by_layer[index] = by_layer.get(index, 0.0) + value
    return EngineMetrics(
        n_running=sums.get(RUNNING),
        n_waiting=sums.get(WAITING),
        generation_tokens=sums.get(GENERATION_TOKENS),
        kv_cache_usage_share=sums.get(KV_CACHE_USAGE),
        n_steps=sums.get(DECODE_STEPS),
        batch_sum=sums.get(DECODE_BATCH),
        distinct_experts_sum=_all_layers(by_layer),
    )


def _samples(text: str) -> Iterator[tuple[str, str, float]]:
    """Yield name, labels and value of each line we may want; others, most of the page, are skipped early."""
    for line in text.splitlines():
        if not line.startswith(("vllm:", "eldr_")):
            continue
        name, brace, rest = line.partition("{")
        if brace:
            labels, _, tail = rest.rpartition("}")
        else:
            name, _, tail = line.partition(" ")
            labels = ""
        try:
            value = float(tail.split()[0])
        except (IndexError, ValueError):
            continue
        if math.isfinite(value):
            yield name.strip(), labels, value


def _all_layers(by_layer: dict[int, float]) -> tuple[float, ...] | None:
    """Return the layers in order, None where one is missing."""
    if not by_layer or max(by_layer) != len(by_layer) - 1:
        return None
    return tuple(by_layer[layer] for layer in range(len(by_layer)))
