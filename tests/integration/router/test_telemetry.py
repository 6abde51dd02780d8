"""What the control plane learns of the requests, also when it is away for a while."""

import asyncio
import json
from dataclasses import replace

import pytest

from eldr_runtime.metrics_blob import MetricsBlob, merge_rows
from eldr_runtime.routing_event import RoutingEvent

pytestmark = pytest.mark.anyio

STEPS = """\
eldr_decode_steps_total {steps}
eldr_decode_batch_total {batch}
eldr_distinct_experts_total{{layer="0"}} {first}
eldr_distinct_experts_total{{layer="1"}} {second}
"""


def rows_of(fleet, worker=None):
    blobs = [MetricsBlob.from_json(json_text(blob)) for blob in fleet.control_plane.blobs]
    rows = merge_rows(row for blob in blobs for row in blob.rows)
    return [row for row in rows if worker is None or row.key.worker == worker]


def json_text(document):
    return json.dumps(document)


async def test_an_event_says_why_a_request_went_where_it_went(
    fleet, router, eventually, new_version, counts_on
):
    version = new_version()
    fleet.publish(version, arms=[{"name": "live", "policy": "eldr", "tau": 0.1}])
    await eventually(lambda: router.process.config.generation == 2)
    fleet.prefill_says(counts_on(3))
    await router.stream(n=1)
    await eventually(lambda: len(fleet.control_plane.events) == 1)
    event = RoutingEvent.from_json(json_text(fleet.control_plane.events[0]))
    (decode,) = fleet.received("decode")
    assert event.request_id == decode.request_id.rpartition(".")[0]
    assert (event.arm, event.generation, event.version) == ("live", 2, version.content_hash)
    assert event.prefill_worker == router.home()
    assert event.cluster == 1
    assert event.similarities[event.decode_worker] == pytest.approx(1.0)
    assert event.band == (event.decode_worker,)
    assert (event.reason, event.outcome) == ("within_band", "completed")
    assert event.in_flight == {"decode-0": 0, "decode-1": 0}
    assert (event.prompt_tokens, event.output_tokens) == (7, 4)
    assert event.ttft_ms > 0
    assert event.tpot_ms >= 0
    assert event.counts.to_counts().counts[0].tolist() == [0, 0, 0, 6]
    assert event.decode_counts is None


async def test_blobs_count_every_request_by_worker_and_cluster(
    fleet, router, eventually, new_version, counts_on
):
    version = new_version()
    fleet.publish(version)
    await eventually(lambda: router.process.config.generation == 2)
    fleet.prefill_says(counts_on(0))
    for _ in range(4):
        await router.stream()
    fleet.worker("decode-0").fault = "cut"
    fleet.worker("decode-0").fault_after = 1
    await router.stream()
    await eventually(lambda: sum(row.n_requests for row in rows_of(fleet) if row.key.worker) == 5)
    rows = {row.key.worker: row for row in rows_of(fleet) if row.key.worker is not None}
    assert {worker: row.n_requests for worker, row in rows.items()} == {"decode-0": 3, "decode-1": 2}
    assert (rows["decode-0"].n_errors, rows["decode-1"].n_errors) == (1, 0)
    assert rows["decode-1"].ttft().count == rows["decode-1"].tpot().count == 2
    assert rows["decode-1"].output_tokens == 8
    (cluster,) = [row for row in rows_of(fleet) if row.key.cluster is not None]
    assert (cluster.key.cluster, cluster.n_requests, cluster.n_without_signature) == (0, 5, 0)
    assert {row.key.version for row in rows_of(fleet)} == {version.content_hash}
    keys = [MetricsBlob.from_json(json_text(blob)).key for blob in fleet.control_plane.blobs]
    assert len(set(keys)) == len(keys)


async def test_nothing_is_lost_while_the_control_plane_is_away(fleet, router, eventually):
    fleet.control_plane.is_down = True
    for _ in range(5):
        assert (await router.stream())[0] == 200
    await asyncio.sleep(1.2)
    assert fleet.control_plane.events == fleet.control_plane.blobs == []
    fleet.control_plane.is_down = False
    await eventually(lambda: len(fleet.control_plane.events) == 5)
    await eventually(lambda: sum(row.n_requests for row in rows_of(fleet)) == 5)
    status = await router.status()
    assert (status["dropped_events"], status["dropped_blobs"]) == (0, 0)


async def test_windows_do_not_wait_for_events_to_run_out(fleet, router, eventually):
    fleet.control_plane.telemetry_seconds = 0.3
    stopped = asyncio.Event()

    async def keep_asking():
        while not stopped.is_set():
            await router.stream()

    asking = asyncio.create_task(keep_asking())
    try:
        await eventually(lambda: len(rows_of(fleet)) > 0)
    finally:
        stopped.set()
        await asking


async def test_what_does_not_fit_is_dropped_and_counted(fleet, start_router, settings, eventually):
    router = await start_router(bounds=replace(settings.bounds, max_queued_events=3))
    fleet.control_plane.is_down = True
    for _ in range(5):
        await router.complete()
    await router.ended(5)
    assert (await router.status())["dropped_events"] == 2
    fleet.control_plane.is_down = False
    # Three, and those of a batch that was under way when the queue overflowed.
    await eventually(lambda: len(fleet.control_plane.events) >= 3)
    await eventually(lambda: any(each["dropped_events"] == 2 for each in fleet.control_plane.heartbeats))


async def test_a_stop_delivers_what_is_left(fleet, settings, start_router):
    router = await start_router(pace=replace(settings.pace, telemetry_seconds=60.0))
    for _ in range(3):
        await router.stream()
    await router.ended(3)
    assert fleet.control_plane.events == []
    await router.stop()
    assert len(fleet.control_plane.events) == 3
    assert sum(row.n_requests for row in rows_of(fleet)) == 3


async def test_steps_and_experts_come_from_the_workers_pages(fleet, router, eventually):
    page = {"steps": 10, "batch": 35, "first": 100, "second": 120}
    fleet.worker("decode-0").metrics = STEPS.format(**page)
    await eventually(lambda: "decode-0" in router.process.scrape.latest)
    await eventually(lambda: router.process.scrape.latest["decode-0"].n_steps == 10)
    page = {"steps": 14, "batch": 45, "first": 140, "second": 180}
    fleet.worker("decode-0").metrics = STEPS.format(**page)
    await eventually(lambda: rows_of(fleet, "decode-0") != [])
    (row,) = rows_of(fleet, "decode-0")
    experts = row.active_experts
    assert (experts.n_steps, experts.batch_sum, experts.sum_by_layer) == (4, 10.0, (40.0, 60.0))
    # A worker that exports nothing of the kind has no row, rather than one that says it is idle.
    assert rows_of(fleet, "decode-1") == []


def profile_of(request_id, counts):
    return {
        "v": 1,
        "request_id": request_id,
        "worker_id": "decode-0",
        "steps": counts["tokens"],
        "counts": counts,
    }


async def test_a_decode_profile_is_joined_with_its_request(fleet, router, eventually, counts_on):
    fleet.publish(limits={"decode_profile_share": 1.0, "event_sample_share": 1.0})
    await eventually(lambda: router.process.config.generation == 2)
    fleet.prefill_says(counts_on(0))
    await router.stream()
    (decode,) = fleet.received("decode")
    profile = profile_of(f"cmpl-{decode.request_id}-0", counts_on(3, tokens=4, covered=4))
    foreign = profile_of("cmpl-x." + "0" * 32, counts_on(3, tokens=4, covered=4))
    body = {"v": 1, "profiles": [foreign, profile]}
    async with router.session.post(f"{router.url}/v1/decode-profiles", json=body) as response:
        assert response.status == 202
    await eventually(lambda: len(fleet.control_plane.events) == 1)
    event = RoutingEvent.from_json(json_text(fleet.control_plane.events[0]))
    assert event.decode_steps == 4
    assert event.decode_counts.to_counts().counts[0].tolist() == [0, 0, 0, 4]
    assert event.counts is not None
    assert (await router.status())["decode_profiles"] == {"joined": 1, "missing": 0, "unclaimed": 0}


async def test_an_event_does_not_wait_for_ever_for_its_profile(fleet, router, eventually, counts_on):
    fleet.publish(limits={"decode_profile_share": 1.0})
    await eventually(lambda: router.process.config.generation == 2)
    fleet.prefill_says(counts_on(0))
    await router.stream()
    await eventually(lambda: len(fleet.control_plane.events) == 1)
    assert fleet.control_plane.events[0]["decode_steps"] is None
    assert (await router.status())["decode_profiles"]["missing"] == 1


@pytest.mark.parametrize("body", [b"{", b'{"v": 1, "profiles": [{}]}', b'{"v": 7, "profiles": []}'])
async def test_profiles_that_are_none_are_a_problem(router, body):
    async with router.session.post(f"{router.url}/v1/decode-profiles", data=body) as response:
        assert response.status == 422
        problem = await response.json(content_type="application/problem+json")
    assert problem["title"] == "Invalid decode profiles"
    assert problem["field"].startswith("$")


async def test_no_prompt_and_no_answer_is_in_the_telemetry(fleet, router, eventually):
    await router.stream(prompt="a very private question")
    await eventually(lambda: len(fleet.control_plane.events) == 1)
    text = json_text([fleet.control_plane.events, fleet.control_plane.blobs, fleet.control_plane.heartbeats])
    assert "private" not in text
    assert "t1" not in text.split()
