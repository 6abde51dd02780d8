"""What fails while requests run, and what it costs: real processes, one stack, left whole by each test."""

import json
import signal
import time
from collections import Counter
from datetime import UTC, datetime

import httpx
import openai
import pytest

from controlplane.cli.engines import SimulatedEngine
from controlplane.cli.main import run
from eldr_runtime.trace_files import load_trace

LEASE_SECONDS = 10.0
# A worker that vanished is noted when its lease is over and a router next asks.
NOTED_SECONDS = LEASE_SECONDS + 5.0
DELIVERED_SECONDS = 20.0


@pytest.fixture
def official_client(running):
    with openai.OpenAI(
        base_url=f"{running.stack.url('router')}/v1", api_key="any", max_retries=0, timeout=30
    ) as client:
        yield client


def test_the_official_client_streams_chats_and_completions(official_client) -> None:
    asked = {
        "model": SimulatedEngine().shape.model,
        "max_tokens": 24,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    chat = list(
        official_client.chat.completions.create(messages=[{"role": "user", "content": "profile 3"}], **asked)
    )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chat if chunk.choices)
    assert chat[-1].usage.completion_tokens == 24
    completion = list(official_client.completions.create(prompt="profile 4", **asked))
    assert "".join(chunk.choices[0].text for chunk in completion if chunk.choices)
    assert completion[-1].usage.completion_tokens == 24
    assert [model.id for model in official_client.models.list()] == [SimulatedEngine().shape.model]


def test_a_trace_is_recorded_through_the_fleet_and_calibrated(running, tmp_path, capsys) -> None:
    prompts, pack = tmp_path / "prompts.jsonl", tmp_path / "recorded.safetensors"
    lines = [{"text": f"profile {number} of many", "topic": f"t{number % 4}"} for number in range(40)]
    prompts.write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = ["calibrate", "--prompts", str(prompts), "--label", "topic", "--output-tokens", "16"]
    command += ["--router", running.stack.url("router"), "--save-pack", str(pack)]
    assert run([*command, "--workers", "4", "--splits", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["n_requests"] == 40
    trace = load_trace(pack)
    assert (len(trace), trace.shape, trace.has_decode) == (40, SimulatedEngine().shape, True)
    assert trace.labels == tuple(line["topic"] for line in lines)
    assert list(tmp_path.glob("*.partial")) == []


def test_a_killed_decode_worker_costs_only_its_own_requests_and_a_new_one_is_used(running) -> None:
    control_url = running.stack.url("fleet")
    with running.load() as load:
        load.finish(20)
        killed = max(running.router_status()["in_flight"].items(), key=lambda item: item[1])[0]
        httpx.delete(f"{control_url}/simulated/workers/{killed}", trust_env=False).raise_for_status()
        killed_at = datetime.now(UTC)
        added = httpx.post(f"{control_url}/simulated/workers", json={"role": "decode"}, trust_env=False)
        new = added.raise_for_status().json()["id"]
        # At once: the new worker is announced with its first heartbeat, and routers ask twice a second.
        assert running.until("the new worker", lambda: new in running.routed_workers()) < 5
        load.finish(20)
        running.until("the end of the lease", lambda: killed not in running.routed_workers(), NOTED_SECONDS)
        load.finish(20)
    assert running.routed_workers() == {name for name in running.workers_in_fleet() if "decode" in name}
    decisions = running.decisions(load.since)
    failed = [decision for decision in decisions if decision["outcome"] != "completed"]
    assert load.summary["failed"] == len(failed)
    assert {decision["decode_worker"] for decision in failed} <= {killed}
    assert all(datetime.fromisoformat(decision["at"]) < killed_at for decision in failed)
    by_worker = Counter(decision["decode_worker"] for decision in decisions)
    assert by_worker[new] > 0
    after = [each for each in decisions if datetime.fromisoformat(each["at"]) > killed_at]
    assert {each["decode_worker"] for each in after} <= running.routed_workers()


def test_without_a_control_plane_no_request_fails_and_nothing_of_them_is_lost(running) -> None:
    n_before = running.settled_requests_in_metrics()
    with running.load() as load:
        load.finish(10)
        running.end("controlplane", signal.SIGKILL)
        killed_at = time.monotonic()
        # Longer than a lease: when it is back, every worker seems lost until it has told of itself again.
        load.finish(20)
        time.sleep(max(0.0, LEASE_SECONDS + 2.0 - (time.monotonic() - killed_at)))
        assert "cannot be reached" in running.router_status()["config_problem"]
        running.stack.start_control_plane()
        load.finish(60)
    assert load.summary["failed"] == 0
    sent = load.summary["sent"]
    running.until("all events", lambda: len(running.decisions(load.since)) >= sent, DELIVERED_SECONDS)
    running.until(
        "all metrics", lambda: running.n_requests_in_metrics() >= n_before + sent, DELIVERED_SECONDS
    )
    assert running.n_requests_in_metrics() == n_before + sent
    status = running.router_status()
    assert (status["dropped_events"], status["dropped_blobs"]) == (0, 0)
    decisions = running.decisions(load.since)
    assert len(decisions) == sent
    assert {decision["outcome"] for decision in decisions} == {"completed"}


def test_a_router_started_without_a_control_plane_serves_from_disk(running, official_client) -> None:
    generation = running.router_status()["generation_applied"]
    running.end("controlplane", signal.SIGKILL)
    running.end("router", signal.SIGTERM)
    running.stack.start_router()
    status = running.router_status()
    assert (status["config_source"], status["generation_applied"]) == ("disk", generation)
    answer = official_client.completions.create(
        model=SimulatedEngine().shape.model, prompt="profile 5", max_tokens=8
    )
    assert answer.usage.completion_tokens == 8
    assert running.router_status()["routed_without_signature"] == {}
    running.stack.start_control_plane()
    running.until("the control plane", lambda: running.router_status()["config_source"] == "control-plane")
    assert running.router_status()["generation_applied"] >= generation
