"""Whatever is wrong with a signature, the request is served by load, and the reason is counted."""

import pytest

pytestmark = pytest.mark.anyio


async def serve_one(fleet, router, eventually, version, **changes):
    fleet.publish(version, arms=[{"name": "live", "policy": "eldr"}], **changes)
    await eventually(lambda: router.process.config.generation == fleet.generation)
    assert (await router.stream())[0] == 200
    await router.ended(1)
    await eventually(lambda: len(fleet.control_plane.events) == 1)
    (event,) = fleet.control_plane.events
    assert event["reason"] == "no_signature"
    assert (event["cluster"], event["similarities"]) == (None, {})
    return (await router.status())["routed_without_signature"]


async def test_no_counts(fleet, router, eventually, new_version):
    assert await serve_one(fleet, router, eventually, new_version()) == {"no_counts": 1}


@pytest.mark.parametrize(
    "damage", [{"counts": "!"}, {"tokens": 0}, {"v": 9}, {"covered": 5}, {"top_k": "one"}]
)
async def test_invalid_counts(fleet, router, eventually, new_version, counts_on, damage):
    fleet.prefill_says({**counts_on(0), **damage})
    assert await serve_one(fleet, router, eventually, new_version()) == {"invalid_counts": 1}


async def test_counts_of_another_model(fleet, router, eventually, new_version, counts_on):
    fleet.prefill_says({**counts_on(0), "model": "other"})
    assert await serve_one(fleet, router, eventually, new_version()) == {"other_model": 1}


@pytest.mark.parametrize("covered", [0, 2])
async def test_low_coverage(fleet, router, eventually, new_version, counts_on, covered):
    fleet.prefill_says(counts_on(0, tokens=6, covered=covered))
    assert await serve_one(fleet, router, eventually, new_version()) == {"low_coverage": 1}


async def test_half_covered_is_enough(fleet, router, eventually, new_version, counts_on):
    fleet.prefill_says(counts_on(0, tokens=6, covered=3))
    fleet.publish(new_version(), arms=[{"name": "live", "policy": "eldr"}])
    await eventually(lambda: router.process.config.generation == fleet.generation)
    await router.complete()
    assert (await router.status())["routed_without_signature"] == {}


async def test_no_version(fleet, router, eventually, counts_on):
    fleet.prefill_says(counts_on(0))
    assert await serve_one(fleet, router, eventually, None) == {"no_version": 1}


async def test_a_worker_that_pushes_its_kv(fleet, router, eventually, new_version, counts_on):
    fleet.prefill_says(counts_on(0))
    workers = [worker.to_json() for worker in fleet.workers]
    workers[0]["transfer_mode"] = "push"
    routed = await serve_one(fleet, router, eventually, new_version(), workers=workers)
    assert routed == {"push_transfer": 1}


async def test_no_hand_off_lets_decode_compute_the_prompt(fleet, router, eventually, new_version):
    for worker in fleet.prefill:
        worker.hands_off = False
    for worker in fleet.decode:
        worker.needs_hand_off = False
    assert await serve_one(fleet, router, eventually, new_version()) == {"no_hand_off": 1}
    (decode,) = fleet.received("decode")
    assert "kv_transfer_params" not in decode.body
