import zlib
from datetime import timedelta

import numpy as np
import pytest

from controlplane.storage.models.fleets import FleetRow
from controlplane.storage.models.metadata import new_id
from controlplane.storage.models.telemetry import SampleRow
from eldr_runtime.latency_model import find_preset


@pytest.fixture
def ask(operator, fleet: str):
    def send(**knobs: object):
        answer = operator.patch(
            f"/v1/fleets/{fleet}/settings?dry_run=true", json={"reason": "what if"} | knobs
        )
        assert answer.status_code == 200, answer.text
        return answer.json()

    return send


@pytest.fixture
def live_fleet(operator, service, fleet, upload_version, version_of, worker_heartbeat) -> None:
    version = upload_version(version_of())
    operator.post(f"/v1/fleets/{fleet}/versions/{version['id']}/promote", json={"reason": "go"})
    for number in range(2):
        heartbeat = worker_heartbeat | {"worker_id": f"decode-{number}"}
        service.post(f"/v1/fleets/{fleet}/workers/heartbeat", json=heartbeat)


def add_samples(control_plane, fleet: str, trace) -> None:
    with control_plane.change() as change:
        for index in range(len(trace)):
            change.session.add(
                SampleRow(
                    id=new_id(),
                    fleet=fleet,
                    request_id=f"r{index}",
                    at=change.now + timedelta(milliseconds=index),
                    arm="live",
                    decode_worker="decode-0",
                    decision="{}",
                    prompt_tokens=10,
                    covered_tokens=10,
                    prefill_counts=zlib.compress(trace.prefill_counts[index].astype("<u2").tobytes()),
                    decode_steps=10,
                    decode_counts=zlib.compress(trace.decode_counts[index].astype("<u2").tobytes()),
                )
            )


def test_recent_traffic_is_replayed_at_several_tau(control_plane, fleet, live_fleet, ask, trace_of) -> None:
    add_samples(control_plane, fleet, trace_of(120))
    preview = ask(tau=0.07)
    assert preview["n_requests"] == 120
    taus = [point["tau"] for point in preview["curve"]]
    assert taus == [0.0, 0.025, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5]
    assert preview["curve"][0]["similarity_kept_share"] == pytest.approx(1.0)
    assert preview["curve"][0]["predicted_tpot_p50_ms"] is None, "nobody measured toy/moe"
    assert all(2 <= point["predicted_union"] <= 8 for point in preview["curve"])


def test_step_times_are_predicted_by_the_preset_that_the_fleet_names(
    control_plane, fleet, live_fleet, ask, trace_of
) -> None:
    add_samples(control_plane, fleet, trace_of(120))
    with control_plane.change() as change:
        change.session.get_one(FleetRow, fleet).latency_preset = "qwen3-30b-a3b-mi300x"
    point = ask(tau=0.07)["curve"][0]
    model = find_preset("qwen3-30b-a3b-mi300x").model
    assert point["predicted_tpot_p50_ms"] > float(model.step_ms(point["predicted_union"] / 2, 1.0, 0.0))


def test_a_policy_without_tau_has_one_point(control_plane, fleet, live_fleet, ask, trace_of) -> None:
    add_samples(control_plane, fleet, trace_of(120))
    local, mixed = ask(policy="eldr", tau=0.0)["curve"][0], ask(policy="random")["curve"]
    assert len(mixed) == 1
    assert mixed[0]["predicted_union"] > local["predicted_union"] + 1


def test_too_thin_traffic_gives_no_curve(control_plane, fleet, live_fleet, ask, trace_of) -> None:
    add_samples(control_plane, fleet, trace_of(99))
    assert (ask(tau=0.2)["n_requests"], ask(tau=0.2)["curve"]) == (0, [])


def test_without_workers_or_a_version_there_is_nothing_to_replay_on(
    control_plane, fleet, ask, trace_of
) -> None:
    add_samples(control_plane, fleet, trace_of(120))
    assert ask(tau=0.2)["curve"] == []
    assert np.isclose(ask(tau=0.2)["tau"], 0.2)
