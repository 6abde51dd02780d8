"""Fewer experts are loaded on real workers: ELDR against join-shortest-queue, randomised pairs of windows."""

import itertools
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

from controlplane.domain.calibrations import RunState, StartCalibration
from controlplane.domain.telemetry import ExperimentState, StartExperiment
from controlplane.domain.versions import Promote
from eldr_runtime.cli.shipped import PROMPTS, RECORDED_TRACE
from eldr_runtime.prompt_file import read_prompts

# Two decode workers of 16 requests each, always full: a few more wait, and answers are long beside prompts.
CONCURRENCY = 40
# Of unequal length: answers that all end at once would come and go in waves, and batches with them.
OUTPUT_TOKENS = (128, 384)
N_PAIRS = 6
WINDOW_SECONDS = 40
WASHOUT_SECONDS = 16
MARGIN_SECONDS = 300
CALIBRATION_SECONDS = 300


@contextmanager
def closed_loop(real: Any) -> Iterator[None]:
    """Keep `CONCURRENCY` requests under way, prompts in random order; streamed, or no TPOT would be known."""
    rng = Random(1)
    prompts = [prompt.text for prompt in read_prompts(PROMPTS).prompts]
    rng.shuffle(prompts)
    source, is_over = itertools.cycle(prompts), threading.Event()
    lock = threading.Lock()

    def client() -> None:
        while not is_over.is_set():
            with lock:
                prompt, n_tokens = next(source), rng.randint(*OUTPUT_TOKENS)
            real.stream(prompt, n_tokens)

    with ThreadPoolExecutor(CONCURRENCY) as pool:
        clients = [pool.submit(client) for _ in range(CONCURRENCY)]
        try:
            yield
        finally:
            is_over.set()
    for each in clients:
        each.result()


def promote_from_the_recorded_trace(real: Any) -> None:
    pack = real.client.upload_trace_pack("recorded", RECORDED_TRACE.read_bytes(), "for the experiment")
    run = real.client.start_calibration(StartCalibration(reason="for the experiment", trace_pack_id=pack.id))

    def is_over() -> bool:
        return real.client.calibration_run(run.id).state not in (RunState.QUEUED, RunState.RUNNING)

    real.until("the calibration", is_over, CALIBRATION_SECONDS)
    done = real.client.calibration_run(run.id)
    assert done.state is RunState.SUCCEEDED, done.error
    real.client.promote(done.version_id, Promote(reason="for the experiment", is_override=True))


@pytest.mark.full_vllm
def test_real_workers_load_fewer_experts(real: Any) -> None:
    promote_from_the_recorded_trace(real)
    command = StartExperiment(
        reason="does it help on real workers?",
        n_pairs=N_PAIRS,
        window_seconds=WINDOW_SECONDS,
        washout_seconds=WASHOUT_SECONDS,
    )
    with closed_loop(real):
        started = real.client.start_experiment(command)
        real.until(
            "the experiment",
            lambda: real.client.experiment(started.id).state is not ExperimentState.RUNNING,
            2 * N_PAIRS * WINDOW_SECONDS + MARGIN_SECONDS,
        )
    experiment = real.client.experiment(started.id)
    effects = {effect.metric: effect for effect in experiment.effects}
    batches = [real.mean_decode_batch(worker) for worker in ("decode-00", "decode-01")]
    told = {name: (effect.mean_percent, effect.interval_percent) for name, effect in effects.items()}
    print(json.dumps({"n_pairs": experiment.n_pairs_done, "mean_decode_batch": batches, **told}))
    active = effects["active_experts"]
    assert experiment.n_pairs_done == N_PAIRS
    assert active.mean_percent <= -8
    assert active.interval_percent[1] < 0
