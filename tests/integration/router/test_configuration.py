"""Where a router gets its configuration, and that no request notices a change."""

import asyncio
import json
import logging

import pytest

pytestmark = pytest.mark.anyio


async def test_a_new_generation_is_applied_and_acknowledged_at_once(fleet, router, new_version, eventually):
    version = new_version()
    fleet.publish(version)
    await eventually(lambda: router.process.config.generation == 2)
    await eventually(lambda: fleet.control_plane.heartbeats[-1]["generation_applied"] == 2)
    beat = fleet.control_plane.heartbeats[-1]
    assert (beat["router_id"], beat["config_source"], beat["url"]) == (
        "router-0",
        "control-plane",
        router.url,
    )
    assert router.process.config.snapshot.arms["live"].version.content_hash == version.content_hash
    await eventually(lambda: fleet.control_plane.n_not_modified > 0)


async def test_generations_only_go_up(fleet, router, eventually):
    fleet.publish()
    await eventually(lambda: router.process.config.generation == 2)
    fleet.control_plane.config = {**fleet.control_plane.config, "generation": 1}
    await eventually(lambda: router.process.config.problem is not None)
    assert router.process.config.problem == (
        "generation is 1; must be at least 2, the one in force; generations only go up"
    )
    assert (await router.status())["generation_applied"] == 2
    assert (await router.complete())[0] == 200


@pytest.mark.parametrize(
    ("artifact", "problem"),
    [(None, "with status 404"), (b"nonsense", "safetensors"), ("another", "content hash is")],
)
async def test_an_artifact_that_is_not_right_is_not_put_in_force(
    fleet, router, new_version, eventually, artifact, problem
):
    fleet.publish(new_version(seed=1))
    await eventually(lambda: router.process.config.generation == 2)
    before = fleet.control_plane.artifacts
    version = new_version(seed=2)
    fleet.publish(version)
    if artifact == "another":
        artifact = next(iter(before.values()))
    fleet.control_plane.artifacts = {} if artifact is None else {version.content_hash: artifact}
    await eventually(lambda: problem in (router.process.config.problem or ""))
    assert router.process.config.generation == 2
    assert (await router.complete())[0] == 200


async def test_a_lost_worker_is_left_out_and_its_stream_goes_on(fleet, router, eventually):
    for worker in fleet.decode:
        worker.pause_after = 1
    reader, writer = await router.open_raw()
    await reader.readuntil(b"t0 ")
    busy = next(worker for worker in fleet.decode if worker.received)
    other = next(worker for worker in fleet.decode if worker is not busy)
    entries = [worker.to_json() for worker in fleet.workers]
    for entry in entries:
        if entry["id"] == busy.worker_id:
            entry["state"] = "draining"
    fleet.publish(workers=entries)
    await eventually(lambda: router.process.config.generation == 2)
    # The stream outlives the change, and its count with it.
    assert router.process.decode_load.in_flight(busy.worker_id) == 1
    other.pause_after = None
    for _ in range(3):
        assert (await router.complete())[0] == 200
    assert len(busy.received) == 1
    busy.resume.set()
    await reader.readuntil(b"[DONE]\n\n")
    await router.ended(4)
    writer.close()


async def test_a_worker_that_was_removed_takes_its_count_along(fleet, router, eventually):
    for worker in fleet.decode:
        worker.pause_after = 1
    reader, writer = await router.open_raw()
    await reader.readuntil(b"t0 ")
    busy = next(worker for worker in fleet.decode if worker.received)
    fleet.publish(workers=[worker.to_json() for worker in fleet.workers if worker is not busy])
    await eventually(lambda: router.process.config.generation == 2)
    assert busy.worker_id not in (await router.status())["in_flight"]
    fleet.publish()
    await eventually(lambda: router.process.config.generation == 3)
    busy.resume.set()
    await reader.readuntil(b"[DONE]\n\n")
    await router.ended(1)
    writer.close()


async def test_without_a_control_plane_it_serves_from_disk(
    fleet, start_router, settings, new_version, counts_on, eventually, caplog
):
    fleet.publish(new_version())
    first = await start_router()
    await eventually(lambda: first.process.config.generation == 2)
    kept = settings.data_dir / "routing-config.json"
    await eventually(lambda: kept.exists() and json.loads(kept.read_bytes())["generation"] == 2)
    fleet.control_plane.is_down = True
    with caplog.at_level(logging.WARNING):
        second = await start_router()
    assert "serving from disk, generation 2" in caplog.text
    status = await second.status()
    assert (status["config_source"], status["generation_applied"]) == ("disk", 2)
    fleet.prefill_says(counts_on(0))
    assert (await second.complete())[0] == 200
    assert (await second.status())["routed_without_signature"] == {}
    # When it comes back, a 304 confirms what is in force.
    fleet.control_plane.is_down = False
    await eventually(lambda: second.process.config.source == "control-plane")
    await eventually(lambda: fleet.control_plane.heartbeats != [])
    assert fleet.control_plane.heartbeats[-1]["generation_applied"] == 2


@pytest.mark.parametrize("damage", ["config", "artifact", "missing artifact"])
async def test_a_damaged_copy_on_disk_is_not_served(
    fleet, start_router, settings, new_version, eventually, damage, caplog
):
    fleet.publish(new_version())
    first = await start_router()
    await eventually(lambda: first.process.config.generation == 2)
    await eventually(lambda: (settings.data_dir / "routing-config.json").exists())
    (artifact,) = (settings.data_dir / "artifacts").iterdir()
    if damage == "config":
        (settings.data_dir / "routing-config.json").write_bytes(b'{"v": 1')
    elif damage == "artifact":
        artifact.write_bytes(artifact.read_bytes()[:-1])
    else:
        artifact.unlink()
    fleet.control_plane.is_down = True
    with caplog.at_level(logging.WARNING):
        second = await start_router()
    assert "the configuration on disk cannot be used" in caplog.text
    status, answer = await second.complete()
    assert status == 503
    assert answer["error"]["message"].startswith(
        "no configuration and no workers: the control plane answered"
    )
    # With the control plane back it mends itself.
    fleet.control_plane.is_down = False
    await eventually(lambda: second.process.config.generation == 2)
    assert (await second.complete())[0] == 200


async def test_only_named_artifacts_stay_on_disk(fleet, router, settings, new_version, eventually):
    artifacts = settings.data_dir / "artifacts"
    for seed in (1, 2):
        version = new_version(seed=seed)
        fleet.publish(version)
        await eventually(
            lambda version=version: (
                [each.name for each in artifacts.iterdir()] == [f"{version.content_hash}.safetensors"]
            )
        )


async def test_with_neither_it_says_so(fleet, start_router):
    fleet.control_plane.is_down = True
    router = await start_router()
    status, answer = await router.complete()
    assert status == 503
    assert answer["error"]["code"] == "no_worker"
    assert (await router.status())["config_source"] == "none"
    async with router.session.get(f"{router.url}/readyz") as response:
        assert response.status == 503
    async with router.session.get(f"{router.url}/livez") as response:
        assert response.status == 200
    await router.ended(1)


async def test_with_a_list_of_workers_it_serves_by_load_alone(
    fleet, start_router, tmp_path, counts_on, caplog
):
    path = tmp_path / "workers.json"
    path.write_text(
        json.dumps([{key: each.to_json()[key] for key in ("id", "role", "url")} for each in fleet.workers])
    )
    fleet.prefill_says(counts_on(0))
    with caplog.at_level(logging.WARNING):
        router = await start_router(control_plane_url=None, workers_file=path)
    assert "serving 4 workers by load alone" in caplog.text
    assert (await router.complete())[0] == 200
    status = await router.status()
    assert (status["generation_applied"], status["config_source"]) == (None, "none")
    assert status["config_problem"] == "no control plane is set"
    assert status["routed_without_signature"] == {"no_version": 1}
    await router.ended(1)


async def test_another_fleets_configuration_is_refused(fleet, router, eventually):
    fleet.control_plane.config = {**fleet.control_plane.config, "fleet": "other", "generation": 9}
    await eventually(lambda: router.process.config.problem == "fleet is 'other'; must be tiny-fleet")
    assert router.process.config.generation == 1


async def test_arms_take_turns_by_the_time_of_arrival(fleet, router, new_version, eventually):
    arms = [{"name": "eldr", "policy": "eldr"}, {"name": "control", "policy": "join_shortest_queue"}]
    schedule = {"seed": 1, "window_seconds": 1, "washout_seconds": 0, "kind": "switchback"}
    fleet.publish(new_version(), arms=arms, arm_schedule=schedule)
    await eventually(lambda: router.process.config.generation == 2)
    for _ in range(12):
        await router.complete()
        await asyncio.sleep(0.2)
    await eventually(lambda: len(fleet.control_plane.events) == 12)
    assert {event["arm"] for event in fleet.control_plane.events} == {"eldr", "control"}
