"""One prefill and one decode worker, KV over NIXL on loopback, requests in the form the router gives them."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from eldr_runtime.count_codec import decode_counts
from eldr_runtime.vllm_adapter.self_test import probe_request, why_probe_failed
from eldr_runtime.vllm_adapter.wire_format import VllmEngine

START_SECONDS = 900
N_PROMPTS, N_TOKENS = 12, 24
MODEL = "tiny"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class ProfileSink(ThreadingHTTPServer):
    """Stands for the router: keeps the decode profiles that are posted."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _SinkHandler)
        self.profiles: list[dict] = []


class _SinkHandler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert isinstance(self.server, ProfileSink)
        self.server.profiles.extend(body["profiles"])
        self.send_response(202)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    prefill_url: str
    decode_url: str
    sink: ProfileSink


def start(
    checkpoint: Path, log: Path, port: int, role: str, extra: dict, environment: dict
) -> subprocess.Popen[bytes]:
    transfer = {
        "kv_connector": "MultiConnector",
        "kv_role": role,
        "kv_connector_extra_config": {
            "connectors": [
                {"kv_connector": "NixlConnector", "kv_role": role, "kv_buffer_device": "cpu"},
                {"kv_connector": "EldrConnector", "kv_role": role, "kv_connector_extra_config": extra},
            ]
        },
    }
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", checkpoint,
        "--served-model-name", MODEL, "--host", "127.0.0.1", "--port", port, "--dtype", "float32",
        "--enforce-eager", "--max-model-len", "2048", "--max-num-seqs", "16",
        "--kv-transfer-config", json.dumps(transfer),
    ]  # fmt: skip
    with log.open("wb") as output:
        return subprocess.Popen(
            [str(part) for part in command], env=environment, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip


def wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        if process.poll() is not None:
            pytest.fail(f"the worker ended with {process.returncode}:\n{log.read_text()[-4000:]}")
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except OSError:
            time.sleep(1)
    pytest.fail(f"the worker did not get ready:\n{log.read_text()[-4000:]}")


@pytest.fixture(scope="module")
def fleet(checkpoint: Path, engine_environment: dict, tmp_path_factory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("fleet")
    sink = ProfileSink()
    threading.Thread(target=sink.serve_forever, daemon=True).start()
    target = {"urls": [f"http://127.0.0.1:{sink.server_address[1]}/v1/decode-profiles"], "share": 1.0}
    (folder / "target.json").write_text(json.dumps(target))
    extras = {
        "kv_producer": {},
        "kv_consumer": {"worker_id": "decode-0", "decode_profile_file": str(folder / "target.json")},
    }
    workers = []
    try:
        for role, extra in extras.items():
            port, log = free_port(), folder / f"{role}.log"
            environment = {
                **os.environ, **engine_environment, "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
                "UCX_TLS": "tcp,self,sm", "UCX_NET_DEVICES": "lo", "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
                "VLLM_NIXL_SIDE_CHANNEL_PORT": str(free_port()), "ELDR_SHARED_CORES": "1",
            }  # fmt: skip
            workers.append((start(checkpoint, log, port, role, extra, environment), port, log))
        for process, port, log in workers:
            wait_until_ready(f"http://127.0.0.1:{port}", process, log)
        yield Fleet(
            prefill_url=f"http://127.0.0.1:{workers[0][1]}",
            decode_url=f"http://127.0.0.1:{workers[1][1]}",
            sink=sink,
        )
    finally:
        for process, _, _ in workers:
            os.killpg(process.pid, signal.SIGTERM)
        for process, _, _ in workers:
            try:
                process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
        sink.shutdown()


def post(url: str, body: dict, request_id: str | None = None) -> dict:
    headers = {"Content-Type": "application/json"}
    if request_id is not None:
        headers["X-Request-Id"] = request_id
    request = urllib.request.Request(f"{url}/v1/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=300) as response:
        return json.load(response)


def two_legs(fleet: Fleet, prompt: Sequence[int], attempt: str) -> dict:
    """Do what the router does with one request."""
    wire = VllmEngine()
    body = {
        "model": MODEL, "prompt": list(prompt), "max_tokens": N_TOKENS, "temperature": 0.0,
        "ignore_eos": True, "return_token_ids": True,
    }  # fmt: skip
    first = post(fleet.prefill_url, wire.prefill_request(body), f"p-{attempt}")
    hand_off = wire.read_hand_off(first)
    assert hand_off is not None
    assert hand_off["do_remote_prefill"] is True
    second = post(fleet.decode_url, wire.decode_request(body, hand_off), attempt)
    counts = wire.read_counts(first)
    assert counts is not None
    return {"counts": counts.to_counts(), "tokens": second["choices"][0]["token_ids"]}


def test_both_workers_pass_the_launchers_probe(fleet: Fleet) -> None:
    for url, is_prefill in ((fleet.prefill_url, True), (fleet.decode_url, False)):
        answer = post(url, probe_request(MODEL, is_prefill=is_prefill))
        assert why_probe_failed(answer, is_prefill=is_prefill) is None


def test_counts_outputs_profiles_and_unions_through_both_workers(fleet: Fleet, reference, prompts) -> None:
    drawn = prompts.draw(31, [20, 64, 127, 128, 129, 200, 256, 300, 31, 90, 400, 150])
    attempts = [f"r{n}.{n:032x}" for n in range(N_PROMPTS)]
    before = unions(fleet)
    with ThreadPoolExecutor(4) as pool:
        served = list(
            pool.map(lambda one: two_legs(fleet, one[0][0], one[1]), zip(drawn, attempts, strict=True))
        )
    until = time.monotonic() + 30
    while time.monotonic() < until and len(profiles_of(fleet, attempts)) < N_PROMPTS:
        time.sleep(0.2)
    profiles = profiles_of(fleet, attempts)
    assert set(profiles) == set(attempts)
    for (prompt, routing), attempt, one in zip(drawn, attempts, served, strict=True):
        n_prompt = len(prompt)
        assert (one["counts"].tokens, one["counts"].covered) == (n_prompt, n_prompt)
        assert np.array_equal(one["counts"].counts, routing.counts(0, n_prompt))
        whole = [*prompt, *one["tokens"]]
        assert one["tokens"] == reference.greedy(whole)[n_prompt - 1 : -1]
        # The decode worker computes the prompt's last token again: it is its first step.
        profile = decode_counts(profiles[attempt]["counts"])
        assert (profile.tokens, profile.covered) == (N_TOKENS, N_TOKENS)
        expected = reference.routing(whole).counts(n_prompt - 1, n_prompt - 1 + N_TOKENS)
        assert np.array_equal(profile.counts, expected)
    after = unions(fleet)
    n_steps = after["steps"] - before["steps"]
    assert n_steps >= N_TOKENS
    assert after["batch"] - before["batch"] == N_PROMPTS * N_TOKENS
    assert all(4 * n_steps <= after[layer] - before[layer] <= 16 * n_steps for layer in range(6))


def profiles_of(fleet: Fleet, attempts: Sequence[str]) -> dict[str, dict]:
    found = {}
    for profile in fleet.sink.profiles:
        for attempt in attempts:
            if attempt in profile["request_id"]:
                found[attempt] = profile
    return found


def unions(fleet: Fleet) -> dict:
    with urllib.request.urlopen(f"{fleet.decode_url}/metrics", timeout=30) as response:
        metrics = VllmEngine().read_metrics(response.read().decode())
    layers = metrics.distinct_experts_sum or (0.0,) * 6
    return {"steps": metrics.n_steps or 0.0, "batch": metrics.batch_sum or 0.0, **dict(enumerate(layers))}
