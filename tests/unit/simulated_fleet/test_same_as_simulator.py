"""The live batch and the discrete-event simulator are two programs for one thing: their times must agree."""

import numpy as np

from eldr_runtime.latency_model import LatencyModel
from eldr_runtime.model_shape import ModelShape
from eldr_runtime.policies.choice import PolicyName, PolicySettings
from eldr_runtime.simulated_fleet.decode_batch import DecodeBatch, DecodeSlot
from eldr_runtime.simulated_fleet.prefill_queue import prefill_ms
from eldr_runtime.simulated_fleet.profile_pool import pool_of_workload
from eldr_runtime.simulation.cluster import ClusterSettings, prepare_traffic, simulate
from eldr_runtime.simulation.workload import WorkloadSettings, generate_profiles, generate_workload

MODEL = LatencyModel(t0_ms=2.0, per_expert_ms=0.5, per_request_ms=0.3, per_kv_token_ms=0.002)
N_REQUESTS = 60


def test_first_and_last_tokens_come_when_the_simulator_says() -> None:
    shape = ModelShape(model="toy", n_layers=3, n_experts=8, top_k=2)
    settings = WorkloadSettings(
        shape=shape, n_topics=3, n_profiles=30, prompt_tokens=50, output_tokens=40, length_sigma=0.4
    )
    profiles = generate_profiles(settings, seed=4)
    workload = generate_workload(profiles, n_requests=N_REQUESTS, rate_per_second=30.0, seed=5)
    cluster = ClusterSettings(
        latency=MODEL, kv_bytes_per_token=1e5, n_decode_workers=1, n_prefill_workers=N_REQUESTS
    )
    policy = PolicySettings(policy=PolicyName.JOIN_SHORTEST_QUEUE)
    expected = simulate(prepare_traffic(workload, profiles, None), policy, cluster, seed=1)

    pool = pool_of_workload(profiles)
    batch = DecodeBatch(n_layers=3, n_experts=8, latency=MODEL, max_running=N_REQUESTS)
    token_seconds: list[list[float]] = [[] for _ in range(N_REQUESTS)]
    transfer_seconds = cluster.transfer_ms(workload.prompt_tokens) / 1000
    now = 0.0

    def submit(request: int) -> None:
        prompt_tokens = int(workload.prompt_tokens[request])
        arrival_seconds = float(workload.arrival_seconds[request])
        slot = DecodeSlot(
            ready_at_seconds=arrival_seconds + prefill_ms(prompt_tokens) / 1000 + transfer_seconds[request],
            log_unused=pool.log_unused(int(workload.profile_of[request])),
            prompt_tokens=prompt_tokens,
            max_tokens=int(workload.output_tokens[request]),
            interval_tokens=1,
            on_tokens=lambda: token_seconds[request].append(now),
        )
        batch.submit(slot)

    for request in range(N_REQUESTS):
        submit(request)
    while (event_seconds := batch.next_event_seconds()) is not None:
        now = event_seconds
        batch.advance(now)

    first_ms = np.array([times[0] for times in token_seconds]) * 1000
    last_ms = np.array([times[-1] for times in token_seconds]) * 1000
    assert [len(times) for times in token_seconds] == workload.output_tokens.tolist()
    np.testing.assert_allclose(first_ms - workload.arrival_seconds * 1000, expected.ttft_ms, rtol=1e-4)
    np.testing.assert_allclose(last_ms, expected.finish_ms, rtol=1e-5)
    assert batch.counters().batch_sum / batch.counters().n_steps > 2
