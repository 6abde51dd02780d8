import json

import pytest

from eldr_runtime.errors import InvalidMessage
from eldr_runtime.heartbeats import ConfigSource, RouterHeartbeat, SelfTest, TransferMode, WorkerHeartbeat
from eldr_runtime.routing_config import WorkerRole, WorkerState

ROUTER = RouterHeartbeat(
    router_id="router-0",
    generation_applied=41,
    config_source=ConfigSource.CONTROL_PLANE,
    in_flight={"decode-0": 3, "decode-1": 0},
    dropped_events=0,
    versions={"eldr": "0.1.0"},
)
WORKER = WorkerHeartbeat(
    fleet="demo",
    worker_id="decode-0",
    role=WorkerRole.DECODE,
    url="http://decode-0:8000",
    engine="vllm",
    engine_version="0.33.0",
    plugin_version="0.1.0",
    model="qwen3-30b-a3b",
    kv_connector="NixlConnector",
    transfer_mode=TransferMode.PULL,
    self_test=SelfTest.NOT_RUN,
    state=WorkerState.READY,
    capacity=64,
)


def test_round_trips() -> None:
    assert RouterHeartbeat.from_json(ROUTER.to_json()) == ROUTER
    assert WorkerHeartbeat.from_json(WORKER.to_json()) == WORKER


def test_the_fields_by_hand() -> None:
    assert json.loads(ROUTER.to_json()) == {
        "v": 1,
        "router_id": "router-0",
        "generation_applied": 41,
        "config_source": "control-plane",
        "in_flight": {"decode-0": 3, "decode-1": 0},
        "dropped_events": 0,
        "versions": {"eldr": "0.1.0"},
        "url": None,
    }
    written = json.loads(WORKER.to_json())
    assert (written["self_test"], written["transfer_mode"]) == ("not run", "pull")
    assert list(written) == [
        *["v", "fleet", "worker_id", "role", "url", "engine", "engine_version", "plugin_version", "model"],
        *["kv_connector", "transfer_mode", "self_test", "state", "capacity"],
    ]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"router_id": ""}, "$.router_id"),
        ({"generation_applied": -1}, "$.generation_applied"),
        ({"dropped_events": -1}, "$.dropped_events"),
        ({"in_flight": {"decode-0": -1}}, "$.in_flight.decode-0"),
        ({"config_source": "memory"}, "$.config_source"),
        ({"v": 7}, "$.v"),
    ],
)
def test_refuses_a_router_heartbeat(change: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidMessage) as refused:
        RouterHeartbeat.from_json(json.dumps(json.loads(ROUTER.to_json()) | change))
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"fleet": ""}, "$.fleet"),
        ({"worker_id": ""}, "$.worker_id"),
        ({"worker_id": "two words"}, "$.worker_id"),
        ({"worker_id": "rack/7"}, "$.worker_id"),  # would be two parts of a path
        ({"worker_id": "w" * 129}, "$.worker_id"),
        ({"role": "both"}, "$.role"),
        ({"url": "decode-0"}, "$.url"),
        ({"state": "lost"}, "$.state"),
        ({"self_test": "unknown"}, "$.self_test"),
        ({"transfer_mode": "throw"}, "$.transfer_mode"),
        ({"capacity": 0}, "$.capacity"),
        ({"v": 7}, "$.v"),
    ],
)
def test_refuses_a_worker_heartbeat(change: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidMessage) as refused:
        WorkerHeartbeat.from_json(json.dumps(json.loads(WORKER.to_json()) | change))
    assert refused.value.field == field
