"""A worker's `/metrics`: vLLM's names where vLLM has one, `eldr_` names for what only the plugin counts."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from eldr_runtime.simulated_fleet.decode_batch import BatchCounters


class MetricKind(StrEnum):
    """Prometheus types used here."""

    GAUGE = "gauge"
    COUNTER = "counter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric family; `samples` are (labels as text, value)."""

    name: str
    kind: MetricKind
    text: str
    samples: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLoad:
    """What vLLM says of every engine."""

    n_running: int
    n_waiting: int
    prompt_tokens: int
    generation_tokens: int
    kv_cache_usage_share: float
    n_finished: int


def render_metrics(metrics: Iterable[Metric]) -> str:
    """Return the Prometheus text of these families."""
    lines: list[str] = []
    for metric in metrics:
        lines.append(f"# HELP {metric.name} {metric.text}")
        lines.append(f"# TYPE {metric.name} {metric.kind.value}")
        lines.extend(f"{metric.name}{labels} {float(value)!r}" for labels, value in metric.samples)
    return "\n".join(lines) + "\n"


def engine_metrics(load: EngineLoad, model: str) -> list[Metric]:
    """Return vLLM's own families."""
    labels = f'{{engine="0",model_name="{model}"}}'
    finished = f'{{engine="0",finished_reason="length",model_name="{model}"}}'
    return [
        _gauge("vllm:num_requests_running", "Requests in the running batch.", labels, load.n_running),
        _gauge("vllm:num_requests_waiting", "Requests waiting to be scheduled.", labels, load.n_waiting),
        _gauge("vllm:kv_cache_usage_perc", "KV cache in use, 1 is full.", labels, load.kv_cache_usage_share),
        _counter("vllm:prompt_tokens_total", "Prompt tokens processed.", labels, load.prompt_tokens),
        _counter("vllm:generation_tokens_total", "Tokens generated.", labels, load.generation_tokens),
        _counter("vllm:request_success_total", "Requests finished.", finished, load.n_finished),
    ]


def prefix_cache_metrics(queried_tokens: int, hit_tokens: int, n_leases: int, model: str) -> list[Metric]:
    """Return what a prefill worker adds."""
    labels = f'{{engine="0",model_name="{model}"}}'
    return [
        _counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up.", labels, queried_tokens),
        _counter("vllm:prefix_cache_hits_total", "Prompt tokens found.", labels, hit_tokens),
        _gauge("eldr_simulated_kv_leases", "Prompts whose KV waits to be pulled.", "", n_leases),
    ]


def decode_metrics(counters: BatchCounters, expected_union: float, late_seconds: float) -> list[Metric]:
    """Return what a decode worker adds: steps, batch and distinct experts summed over steps."""
    by_layer = tuple((f'{{layer="{i}"}}', float(n)) for i, n in enumerate(counters.distinct_experts))
    return [
        _counter("eldr_decode_steps_total", "Decode steps.", "", counters.n_steps),
        _counter("eldr_decode_batch_total", "Batch size summed over decode steps.", "", counters.batch_sum),
        Metric(
            name="eldr_distinct_experts_total",
            kind=MetricKind.COUNTER,
            text="Distinct experts used, summed over decode steps, by layer.",
            samples=by_layer,
        ),
        _gauge(
            "eldr_simulated_expected_union", "Expected distinct experts of this step.", "", expected_union
        ),
        _counter(
            "eldr_simulated_late_seconds_total", "How late step ends were noticed, summed.", "", late_seconds
        ),
    ]


def _gauge(name: str, text: str, labels: str, value: float) -> Metric:
    return Metric(name=name, kind=MetricKind.GAUGE, text=text, samples=((labels, value),))


def _counter(name: str, text: str, labels: str, value: float) -> Metric:
    return Metric(name=name, kind=MetricKind.COUNTER, text=text, samples=((labels, value),))
