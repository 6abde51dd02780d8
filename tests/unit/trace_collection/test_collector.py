"""The collector against a server that fails on demand."""

import asyncio
from collections import Counter

import numpy as np
import pytest
from aiohttp import web

from eldr_runtime.count_codec import ExpertCounts, encode_counts
from eldr_runtime.model_shape import ModelShape
from eldr_runtime.prompt_file import Prompt
from eldr_runtime.trace_collection import collector
from eldr_runtime.trace_collection.collector import CollectionFailed, collect, find_model
from eldr_runtime.trace_collection.spool import CollectionSettings, Spool

SHAPE = ModelShape(model="m", n_layers=1, n_experts=4, top_k=1)
SETTINGS = CollectionSettings(prompts_hash="h", model="m", output_tokens=4, temperature=0.8, seed=1)
PROMPTS = [Prompt(id=str(number), text=f"prompt {number}", fields={}) for number in range(8)]


def answer(n_known: int = 3) -> dict[str, object]:
    counts = ExpertCounts(
        shape=SHAPE, counts=np.array([[n_known, 0, 0, 0]], dtype=np.uint32), tokens=3, covered=n_known
    )
    return {"kv_transfer_params": {"eldr": encode_counts(counts), "eldr_decode": encode_counts(counts)}}


class Router:
    """Answers the first times a prompt comes as `first` says, and then well."""

    def __init__(self, first: dict[str, list[object]]) -> None:
        self.first = first
        self.asked = Counter()
        self.bodies = []

    async def complete(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.bodies.append(body)
        name = body["prompt"].removeprefix("prompt ")
        self.asked[name] += 1
        script = self.first.get(name, [])
        what = script.pop(0) if script else answer()
        if isinstance(what, int):
            return web.Response(status=what, text="no")
        if isinstance(what, str):
            return web.Response(text=what, content_type="application/json")
        return web.json_response(what)

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "m"}]})


def run(router: Router, spool: Spool) -> tuple[object, list[tuple[int, int]], str]:
    """Serve, ask for the model and collect; returns failures, progress and the model."""

    async def go() -> tuple[object, list[tuple[int, int]], str]:
        application = web.Application()
        application.router.add_post("/v1/completions", router.complete)
        application.router.add_get("/v1/models", router.models)
        runner = web.AppRunner(application)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            progress = []
            failures = await collect(
                PROMPTS, spool, url, concurrency=3, on_progress=lambda *both: progress.append(both)
            )
            return failures, progress, await find_model(url)
        finally:
            await runner.cleanup()

    return asyncio.run(go())


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "PAUSE_SECONDS", 0.0)


def test_every_prompt_once_and_none_that_is_there_already(tmp_path) -> None:
    router = Router({})
    spool = Spool.open(tmp_path / "spool", SETTINGS)
    failures, progress, model = run(router, spool)
    assert (failures, model, progress[-1]) == ((), "m", (8, 8))
    assert router.asked == {str(number): 1 for number in range(8)}
    assert router.bodies[0]["kv_transfer_params"] == {"eldr": True, "eldr_decode": True}
    assert (router.bodies[0]["max_tokens"], router.bodies[0]["stream"]) == (4, False)
    assert run(router, spool)[0] == ()
    assert sum(router.asked.values()) == 8


@pytest.mark.parametrize("wrong", [503, "not JSON", "[]", {}, {"kv_transfer_params": 1}, answer(0)])
def test_what_fails_is_asked_again_later(tmp_path, wrong) -> None:
    router = Router({"2": [wrong, wrong]})
    spool = Spool.open(tmp_path / "spool", SETTINGS)
    assert run(router, spool)[0] == ()
    assert router.asked["2"] == 3
    assert set(spool.collected) == {prompt.id for prompt in PROMPTS}


def test_more_than_one_percent_is_an_error_and_the_others_are_kept(tmp_path) -> None:
    router = Router({"5": [500] * 3})
    spool = Spool.open(tmp_path / "spool", SETTINGS)
    with pytest.raises(CollectionFailed, match="1 of 8 prompts got no counts; at most 1% may lack them; 5: "):
        run(router, spool)
    assert len(Spool.open(tmp_path / "spool", SETTINGS).collected) == 7


def test_who_serves_no_model_is_named() -> None:
    with pytest.raises(CollectionFailed, match="does not say which model it serves"):
        asyncio.run(find_model("http://127.0.0.1:9"))
