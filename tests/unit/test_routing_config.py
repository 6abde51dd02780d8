import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eldr_runtime.errors import InvalidConfig, InvalidMessage, InvalidValue
from eldr_runtime.experiment_design import ArmSchedule, ScheduleKind
from eldr_runtime.policies.choice import PolicyName
from eldr_runtime.routing_config import (
    Arm,
    ModelEntry,
    RouterLimits,
    RoutingConfig,
    VersionRef,
    WorkerEntry,
    WorkerRole,
    WorkerState,
    check_worker_url,
)


def version(number: int) -> VersionRef:
    return VersionRef(
        id=f"version-{number}",
        number=number,
        content_hash=f"{number:064x}",
        artifact_url=f"/v1/fleets/demo/versions/{number}/artifact",
    )


def worker(name: str, role: WorkerRole, state: WorkerState) -> WorkerEntry:
    return WorkerEntry(id=name, role=role, url=f"http://{name}:8000", state=state, capacity=64)


CONFIG = RoutingConfig(
    fleet="demo",
    generation=41,
    issued_at=datetime(2026, 1, 31, 12, tzinfo=UTC),
    model=ModelEntry(id="qwen3-30b-a3b", layers=48, experts=128, top_k=8),
    version=version(2),
    arms=(
        Arm(name="eldr", policy=PolicyName.ELDR_CAPPED, load_cap=1.25, share=0.5),
        Arm(name="control", policy=PolicyName.JOIN_SHORTEST_QUEUE, version=version(1), share=0.5),
    ),
    arm_schedule=ArmSchedule(seed=7, window_seconds=60, washout_seconds=20, kind=ScheduleKind.SWITCHBACK),
    shadow=version(3),
    workers=(
        worker("prefill-0", WorkerRole.PREFILL, WorkerState.READY),
        worker("decode-2", WorkerRole.DECODE, WorkerState.READY),
        worker("decode-1", WorkerRole.DECODE, WorkerState.LOST),
        worker("decode-0", WorkerRole.DECODE, WorkerState.READY),
        worker("decode-3", WorkerRole.DECODE, WorkerState.DRAINING),
    ),
)


def test_the_json_by_hand() -> None:
    written = json.loads(CONFIG.to_json())
    assert list(written) == [
        *["v", "fleet", "generation", "issued_at", "model", "version", "arms", "arm_schedule"],
        *["shadow", "workers", "limits"],
    ]
    assert written["v"] == 1
    assert written["issued_at"] == "2026-01-31T12:00:00Z"
    assert written["model"] == {"id": "qwen3-30b-a3b", "layers": 48, "experts": 128, "top_k": 8}
    assert written["arm_schedule"] == {
        "seed": 7,
        "window_seconds": 60,
        "washout_seconds": 20,
        "kind": "switchback",
    }
    assert written["arms"][1]["version"]["content_hash"] == f"{1:064x}"
    assert written["workers"][0] == {
        "id": "prefill-0",
        "role": "prefill",
        "url": "http://prefill-0:8000",
        "state": "ready",
        "capacity": 64,
        "transfer_mode": "pull",
    }


def test_round_trip_from_text_and_bytes() -> None:
    assert RoutingConfig.from_json(CONFIG.to_json()) == CONFIG
    assert RoutingConfig.from_json(CONFIG.to_json().encode()) == CONFIG
    bare = replace(CONFIG, version=None, shadow=None, workers=())
    assert RoutingConfig.from_json(bare.to_json()) == bare


def test_what_a_router_asks_of_it() -> None:
    eldr, control = CONFIG.arms
    assert CONFIG.version_of(eldr) == version(2)
    assert CONFIG.version_of(control) == version(1)
    assert CONFIG.versions() == (version(2), version(1), version(3))
    assert CONFIG.worker_ids(WorkerRole.DECODE) == ("decode-0", "decode-2")
    assert CONFIG.worker_ids(WorkerRole.DECODE, WorkerState.LOST) == ("decode-1",)
    assert CONFIG.absent_ids(WorkerRole.DECODE) == ("decode-1", "decode-3")
    assert CONFIG.worker_ids(WorkerRole.PREFILL) == ("prefill-0",)
    assert CONFIG.arm_at(185).index == 3
    assert {CONFIG.arm_at(180).arm, CONFIG.arm_at(120).arm} == {"eldr", "control"}
    assert eldr.to_settings().effective_load_cap == 1.25
    assert CONFIG.model.to_shape().counts_shape == (48, 128)


def test_a_newer_sender_is_understood_and_another_version_is_not() -> None:
    newer = json.loads(CONFIG.to_json())
    newer["mood"] = "new"
    newer["arms"][0]["mood"] = "new"
    assert RoutingConfig.from_json(json.dumps(newer)) == CONFIG
    with pytest.raises(InvalidMessage, match=r"\$\.v"):
        RoutingConfig.from_json(json.dumps(newer | {"v": 2}))


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        (("generation",), 0, "$.generation"),
        (("fleet",), "no spaces", "$.fleet"),
        (("model", "top_k"), 129, "$.model.top_k"),
        (("version", "content_hash"), "ABC", "$.version.content_hash"),
        (("version", "number"), 0, "$.version.number"),
        (("version", "artifact_url"), "", "$.version.artifact_url"),
        (("arms", 0, "tau"), 2.5, "$.arms[0].tau"),
        (("arms", 0, "load_cap"), 0.5, "$.arms[0].load_cap"),
        (("arms", 0, "policy"), "domain", "$.arms[0].policy"),
        (("arms", 0, "share"), 1.5, "$.arms[0].share"),
        (("arms", 1, "load_cap"), 1.25, "$.arms[1].load_cap"),
        (("arms", 1, "name"), "eldr", "$.arms"),
        (("arms",), [], "$.arms"),
        (("arm_schedule", "washout_seconds"), 60, "$.arm_schedule.washout_seconds"),
        (("arm_schedule", "kind"), "single", "$.arms"),
        (("workers", 2, "id"), "decode-0", "$.workers"),
        (("workers", 0, "url"), "ftp://prefill-0", "$.workers[0].url"),
        (("workers", 0, "capacity"), 0, "$.workers[0].capacity"),
        (("limits", "max_queued_requests"), -1, "$.limits.max_queued_requests"),
        (("limits", "event_sample_share"), 1.1, "$.limits.event_sample_share"),
        (("limits", "signature_sample_share"), -0.1, "$.limits.signature_sample_share"),
        (("limits", "metrics_window_seconds"), 0.5, "$.limits.metrics_window_seconds"),
        (("workers", 0, "transfer_mode"), "throw", "$.workers[0].transfer_mode"),
        (("limits", "decode_profiles_per_second"), -1, "$.limits.decode_profiles_per_second"),
    ],
)
def test_refuses_with_the_path(path: tuple[str | int, ...], value: object, field: str) -> None:
    changed = json.loads(CONFIG.to_json())
    place = changed
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(InvalidMessage) as refused:
        RoutingConfig.from_json(json.dumps(changed))
    assert refused.value.field == field


def test_refuses_a_snapshot_made_in_code() -> None:
    with pytest.raises(InvalidConfig, match="generation"):
        replace(CONFIG, generation=-1)
    with pytest.raises(InvalidConfig, match="issued_at"):
        replace(CONFIG, issued_at=datetime(2026, 1, 1))  # noqa: DTZ001
    with pytest.raises(InvalidValue, match=r"\$\.v"):
        replace(CONFIG, v=9)


@pytest.mark.parametrize("url", ["http://10.0.0.1:8000", "https://worker.example/base", "http://[::1]:80"])
def test_takes_a_worker_url(url: str) -> None:
    check_worker_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "worker:8000",
        "http://",
        "file:///etc/passwd",
        "http://user:word@host",
        "http://host:port",
        "http://[::1",
    ],
)
def test_refuses_a_worker_url(url: str) -> None:
    with pytest.raises(InvalidConfig, match="url"):
        check_worker_url(url)


names = st.text("abc-._0", min_size=1, max_size=5).map(lambda text: f"x{text}")
arms = st.builds(
    Arm,
    name=names,
    policy=st.sampled_from([PolicyName.ELDR, PolicyName.ELDR_CAPPED, PolicyName.RANDOM]),
    version=st.none() | st.integers(1, 9).map(version),
    tau=st.floats(0, 2),
    minimum_candidates=st.integers(1, 2),
    share=st.floats(0, 1),
)
configs = st.builds(
    RoutingConfig,
    fleet=names,
    generation=st.integers(1, 2**53),
    issued_at=st.datetimes(min_value=datetime(2000, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    model=st.just(CONFIG.model),
    version=st.none() | st.integers(1, 9).map(version),
    arms=st.lists(arms, min_size=2, max_size=2, unique_by=lambda arm: arm.name).map(tuple),
    arm_schedule=st.just(CONFIG.arm_schedule),
    shadow=st.none() | st.integers(1, 9).map(version),
    workers=st.lists(
        st.builds(
            worker, name=names, role=st.sampled_from(WorkerRole), state=st.sampled_from(WorkerState)
        ).filter(lambda each: "." not in each.id and "_" not in each.id),
        max_size=4,
        unique_by=lambda each: each.id,
    ).map(tuple),
    limits=st.builds(
        RouterLimits, max_queued_requests=st.integers(0, 10), event_sample_share=st.floats(0, 1)
    ),
)


@settings(max_examples=60, deadline=None)
@given(config=configs)
def test_round_trip(config: RoutingConfig) -> None:
    assert RoutingConfig.from_json(config.to_json()) == config
