import asyncio
import json

import numpy as np
import pytest

from eldr_runtime.simulated_fleet.load_control import build_load_control
from eldr_runtime.simulated_fleet.load_generator import LoadGenerator, LoadSettings
from eldr_runtime.simulated_fleet.process import serve
from eldr_runtime.simulated_fleet.traffic_mix import TrafficMix

LABELS = ["topic-0", "topic-1"] * 6


def make_generator(url: str, **changes: object) -> LoadGenerator:
    fields: dict[str, object] = {
        "router_url": url,
        "model": "toy-moe",
        "rate_per_second": 40.0,
        "prompt_tokens": 12,
        "output_tokens": 14,
        "duration_seconds": 0.5,
        "drain_seconds": 10.0,
        "max_in_flight": 100,
        "seed": 3,
    }
    mix = TrafficMix(LABELS, unseen_topic="topic-1", topic_shares=None, rng=np.random.default_rng(1))
    return LoadGenerator(LoadSettings(**{**fields, **changes}), mix)


def test_all_requests_finish_and_the_pace_is_the_fleets(run_fleet, serve_router) -> None:
    async def scenario() -> None:
        async with run_fleet(n_prefill=2, n_decode=2) as running, serve_router(running) as url:
            generator = make_generator(url)
            await generator.run()
            summary = generator.statistics.summary()
            assert summary.sent == summary.finished > 5
            assert (summary.failed, summary.failures) == (0, {})
            assert summary.output_tokens == 14 * summary.finished
            # one request alone: 2 + 0.5 * 2 + 0.25 ms a step; after prefill of 30 ms and a transfer of 6 ms
            assert summary.tpot_p50_ms >= 3.25 * 0.9
            assert summary.ttft_p50_ms >= 36.0

    asyncio.run(scenario())


def test_cut_streams_and_refusals_are_counted_one_by_one(run_fleet, serve_router) -> None:
    async def scenario() -> None:
        async with run_fleet() as running, serve_router(running) as url:
            await running.show_fault("decode-00", kind="cut_stream", after_chunks=2)
            cut = make_generator(url)
            await cut.run()
            summary = cut.statistics.summary()
            assert summary.failures == {"error event": summary.sent}
            assert summary.errors[0].reason == "error event: worker lost"
            await running.show_fault("decode-00", kind="http_5xx", status=503)
            refused = make_generator(url)
            await refused.run()
            summary = refused.statistics.summary()
            assert summary.failures == {"http 503": summary.sent}
            assert summary.finished == 0

    asyncio.run(scenario())


def test_nobody_there_is_a_failure_of_every_request() -> None:
    async def scenario() -> None:
        generator = make_generator("http://127.0.0.1:9")
        await generator.run()
        summary = generator.statistics.summary()
        assert summary.failures == {"connection": summary.sent}
        assert generator.statistics.in_flight == 0

    asyncio.run(scenario())


def test_stop_lets_requests_finish_and_drain_time_ends_them(run_fleet, serve_router) -> None:
    async def scenario() -> None:
        async with run_fleet() as running, serve_router(running) as url:
            generator = make_generator(url, duration_seconds=None)
            run = asyncio.create_task(generator.run())
            await asyncio.sleep(0.3)
            generator.stop()
            await run
            assert generator.statistics.failed == 0
            assert generator.statistics.sent == generator.statistics.finished
            late = make_generator(url, output_tokens=9000, drain_seconds=0.2)
            await late.run()
            assert late.statistics.summary().failures == {"unfinished": late.statistics.sent}

    asyncio.run(scenario())


def test_requests_beyond_the_limit_are_not_sent_and_count(run_fleet, serve_router) -> None:
    async def scenario() -> None:
        async with run_fleet() as running, serve_router(running) as url:
            generator = make_generator(url, max_in_flight=1, rate_per_second=200.0, duration_seconds=0.1)
            await generator.run()
            summary = generator.statistics.summary()
            assert summary.failures["not sent"] == summary.sent - summary.finished > 0

    asyncio.run(scenario())


def test_mix_and_status_over_the_control_port(run_fleet, serve_router) -> None:
    async def scenario() -> None:
        async with run_fleet() as running, serve_router(running) as url:
            generator = make_generator(url)
            async with serve(build_load_control(generator), "127.0.0.1", 0) as control:
                async with running.session.post(
                    f"{control}/mix", json={"unseen_topic_share": 0.4}
                ) as response:
                    assert response.status == 200
                await generator.run()
                async with running.session.get(f"{control}/status") as response:
                    status = json.loads(await response.text())
                assert status["mix"]["unseen_topic_share"] == 0.4
                assert status["mix"]["unseen_topic"] == "topic-1"
                assert status["sent"] == status["finished"] == generator.statistics.sent
                assert (status["failed"], status["in_flight"], status["errors"]) == (0, 0, [])
                assert status["tpot_p50_ms"] > 0
                async with running.session.post(f"{control}/mix", json={"unseen_topic_share": 2}) as response:
                    assert response.status == 400

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "change", [{"rate_per_second": 0.0}, {"prompt_tokens": 3}, {"output_tokens": 0}], ids=str
)
def test_settings_are_checked(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(change)).removesuffix("_per_second")):
        make_generator("http://127.0.0.1:9", **change)
