import numpy as np

from eldr_runtime.simulated_fleet.decode_batch import BatchCounters
from eldr_runtime.simulated_fleet.worker_metrics import (
    EngineLoad,
    decode_metrics,
    engine_metrics,
    render_metrics,
)
from eldr_runtime.vllm_adapter.metrics_text import read_engine_metrics


def test_what_the_router_reads_is_what_the_worker_counted() -> None:
    load = EngineLoad(
        n_running=3,
        n_waiting=1,
        prompt_tokens=10,
        generation_tokens=1_234_567_890,
        kv_cache_usage_share=0.25,
        n_finished=2,
    )
    counters = BatchCounters(n_steps=7, batch_sum=21, n_tokens=20, distinct_experts=np.array([10.5, 12.25]))
    text = render_metrics([*engine_metrics(load, "m"), *decode_metrics(counters, 4.5, 0.1)])
    read = read_engine_metrics(text)
    assert (read.n_running, read.n_waiting, read.kv_cache_usage_share) == (3, 1, 0.25)
    assert read.generation_tokens == 1_234_567_890
    assert (read.n_steps, read.batch_sum, read.distinct_experts_sum) == (7, 21, (10.5, 12.25))


def test_every_family_has_its_help_and_type() -> None:
    counters = BatchCounters(n_steps=0, batch_sum=0, n_tokens=0, distinct_experts=np.zeros(2))
    lines = render_metrics(decode_metrics(counters, 0.0, 0.0)).splitlines()
    names = {line.split("{")[0].split()[0] for line in lines if not line.startswith("#")}
    assert {line.split()[2] for line in lines if line.startswith("# HELP")} == names
    assert {line.split()[2] for line in lines if line.startswith("# TYPE")} == names
