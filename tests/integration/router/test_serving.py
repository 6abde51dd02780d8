import json

import pytest

pytestmark = pytest.mark.anyio


async def test_a_completion_goes_through_both_legs(fleet, router):
    status, answer = await router.complete(seed=5, unknown={"deep": [1]})
    assert status == 200
    assert answer["choices"][0]["text"] == "t0 t1 t2 t3 "
    (prefill,) = [each for worker in fleet.prefill for each in worker.received]
    (decode,) = [each for worker in fleet.decode for each in worker.received]
    assert prefill.body["max_tokens"] == 1
    assert prefill.body["kv_transfer_params"]["do_remote_decode"] is True
    assert decode.body["max_tokens"] == 4
    assert decode.body["prompt"] == "hello"
    assert (decode.body["seed"], decode.body["unknown"]) == (5, {"deep": [1]})
    assert decode.body["kv_transfer_params"]["remote_host"] == "127.0.0.1"
    assert fleet.kv.held == set()
    router.assert_nothing_in_flight()


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
async def test_a_stream_is_passed_on_without_the_usage_nobody_asked_for(fleet, router, path):
    status, data = await router.stream(path)
    assert status == 200
    assert data.endswith(b"data: [DONE]\n\n")
    assert b"usage" not in data
    assert data.count(b"t3 ") == 1
    (decode,) = [each for worker in fleet.decode for each in worker.received]
    assert decode.body["stream_options"] == {"include_usage": True}
    router.assert_nothing_in_flight()


async def test_usage_goes_to_a_client_that_asks(fleet, router):
    _, data = await router.stream(stream_options={"include_usage": True})
    assert data.count(b'"completion_tokens":4') == 1


async def test_the_counts_never_reach_the_decode_worker(fleet, router, counts_on, new_version, eventually):
    fleet.publish(new_version())
    fleet.prefill_says(counts_on(0))
    await eventually(lambda: router.process.config.generation == fleet.generation)
    await router.complete()
    (decode,) = [each for worker in fleet.decode for each in worker.received]
    assert "eldr" not in decode.body["kv_transfer_params"]
    assert (await router.status())["routed_without_signature"] == {}


async def test_a_client_that_asks_gets_the_counts_of_its_prompt(fleet, router, counts_on):
    fleet.prefill_says(counts_on(0))
    _, silent = await router.complete()
    assert "eldr" not in (silent.get("kv_transfer_params") or {})
    _, answer = await router.complete(kv_transfer_params={"eldr": True, "eldr_decode": True, "evil": 1})
    assert answer["kv_transfer_params"]["eldr"].items() >= counts_on(0).items()
    assert answer["choices"] == silent["choices"]
    sent = [each.body["kv_transfer_params"] for worker in fleet.decode for each in worker.received]
    assert [parameters.get("eldr_decode") for parameters in sent] in ([None, True], [True, None])
    assert all("evil" not in parameters for parameters in sent)


async def test_requests_of_one_topic_meet_on_one_worker(fleet, router, counts_on, new_version, eventually):
    fleet.publish(new_version(), arms=[{"name": "live", "policy": "eldr", "tau": 0.0}])
    await eventually(lambda: router.process.config.generation == fleet.generation)
    went_to = []
    for expert in (0, 3, 0, 3):
        fleet.prefill_says(counts_on(expert))
        before = [len(worker.received) for worker in fleet.decode]
        await router.complete()
        went_to.append([len(w.received) - n for w, n in zip(fleet.decode, before, strict=True)])
    assert went_to[0] == went_to[2]
    assert went_to[1] == went_to[3]
    assert went_to[0] != went_to[1]


async def test_request_ids_are_taken_or_made_and_each_attempt_has_its_own(fleet, router):
    body = {"model": "tiny", "prompt": "hello"}
    url = f"{router.url}/v1/completions"
    async with router.session.post(url, json=body, headers={"X-Request-Id": "mine-1"}) as response:
        assert response.headers["X-Request-Id"] == "mine-1"
    async with router.session.post(url, json=body) as response:
        made = response.headers["X-Request-Id"]
        assert len(made) == 32
    received = [each for worker in fleet.workers for each in worker.received]
    attempts = [each.request_id for each in received]
    assert len(set(attempts)) == 4
    assert sorted(attempt.rpartition(".")[0] for attempt in attempts) == sorted(["mine-1"] * 2 + [made] * 2)


async def test_only_headers_the_workers_may_want_are_passed_on(fleet, router):
    headers = {"Authorization": "Bearer worker-key", "Cookie": "private=1", "traceparent": "00-1-2-01"}
    body = {"model": "tiny", "prompt": "hello"}
    async with router.session.post(f"{router.url}/v1/completions", json=body, headers=headers) as response:
        assert response.status == 200
    for received in [each for worker in fleet.workers for each in worker.received]:
        assert received.headers["authorization"] == "Bearer worker-key"
        assert received.headers["traceparent"] == "00-1-2-01"
        assert "Cookie" not in received.headers


async def test_models_health_and_readiness(fleet, router):
    async with router.session.get(f"{router.url}/v1/models") as response:
        assert (await response.json())["data"][0]["id"] == "tiny"
    for path in ("/health", "/livez"):
        async with router.session.get(router.url + path) as response:
            assert response.status == 200
    async with router.session.get(f"{router.url}/readyz") as response:
        assert response.status == 200
    # It was a generation through both legs, and it is in no figures.
    assert [len(each.received) for each in fleet.workers].count(1) == 2
    assert (await router.status())["requests"] == {}


async def test_not_ready_while_a_leg_does_not_work(fleet, router):
    for worker in fleet.decode:
        worker.status = 500
    async with router.session.get(f"{router.url}/readyz") as response:
        assert response.status == 503
        assert "answered with status 500" in await response.text()
    router.assert_nothing_in_flight()


async def test_metrics_page(fleet, router):
    await router.stream()
    async with router.session.get(f"{router.url}/metrics") as response:
        page = await response.text()
    assert 'eldr_router_requests_total{outcome="completed"} 1.0' in page
    assert 'eldr_router_routed_without_signature_total{reason="no_counts"} 1.0' in page
    assert "eldr_router_ttft_seconds_count 1.0" in page
    assert "eldr_router_tpot_seconds_count 1.0" in page
    assert "eldr_router_config_generation 1.0" in page
    assert 'eldr_router_in_flight{role="decode",worker="decode-' in page


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"{", "the body is not JSON"),
        (b"[1]", "the body is a JSON list; must be an object"),
        (b'{"prompt": ["a", "b"]}', "prompt is a list of 2 prompts; must be one prompt a request"),
        (b"[" * 100_000, "the body is nested too deeply"),
        (b'{"prompt": "a", "stream": 1}', "stream is '1'; must be true or false"),
        (b'{"prompt": "a", "stream": "yes"}', "stream is 'yes'; must be true or false"),
    ],
)
async def test_a_bad_body_is_refused_in_openai_shape(fleet, router, data, message):
    async with router.session.post(f"{router.url}/v1/completions", data=data) as response:
        error = (await response.json())["error"]
        assert response.status == 400
    assert message in error["message"]
    assert error["type"] == "invalid_request_error"
    assert [each for worker in fleet.workers for each in worker.received] == []
    router.assert_nothing_in_flight()


async def test_a_body_of_any_depth_gets_an_answer_in_openai_shape(router):
    """Some depths are parsed and cannot be written again for a worker."""
    statuses = set()
    for depth in range(900, 1000):
        data = b'{"prompt": "a", "extra": ' + b"[" * depth + b"]" * depth + b"}"
        async with router.session.post(f"{router.url}/v1/completions", data=data) as response:
            document = await response.json()
        assert response.status in (200, 400), document
        statuses.add(response.status)
        if response.status == 400:
            assert document["error"]["message"] == "the body is nested too deeply"
    assert statuses == {200, 400}
    router.assert_nothing_in_flight()


async def test_a_list_of_one_prompt_is_that_prompt(fleet, router):
    status, _ = await router.complete(prompt=["hello"])
    assert status == 200
    (decode,) = [each for worker in fleet.decode for each in worker.received]
    assert decode.body["prompt"] == "hello"


async def test_too_large_a_body_unknown_path_and_wrong_method(router):
    async with router.session.post(f"{router.url}/v1/completions", data=b"x" * 100_001) as response:
        assert response.status == 413
        assert (await response.json())["error"]["code"] == "body_too_large"
    async with router.session.get(f"{router.url}/v1/completions") as response:
        assert response.status == 405
        assert json.loads(await response.read())["error"]["type"] == "invalid_request_error"
    async with router.session.post(f"{router.url}/v1/embeddings", json={}) as response:
        assert response.status == 404
    router.assert_nothing_in_flight()
