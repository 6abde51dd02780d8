import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest

from eldr_runtime.decode_profile import DecodeProfile, EncodedCounts
from eldr_runtime.errors import InvalidValue
from eldr_runtime.model_shape import ModelShape
from eldr_runtime.sampling import is_sampled
from eldr_runtime.vllm_adapter.decode_profiles import (
    DecodeTally,
    ProfilePush,
    ProfileTarget,
    TargetFile,
    attempt_id_of,
)
from eldr_runtime.vllm_adapter.plugin_settings import PluginSettings

SHAPE = ModelShape(model="m", n_layers=2, n_experts=4, top_k=2)
KEY = "0123456789abcdef" * 2


@pytest.mark.parametrize("attempt", [f"a.{KEY}", f"cmpl-a.{KEY}", f"a-0.{KEY}", f"a.{KEY}.{KEY}"])
@pytest.mark.parametrize("form", ["cmpl-{}-0-9f3c21aa", "chatcmpl-{}-9f3c21aa", "cmpl-{}-0"])
def test_the_routers_id_is_found_in_vllms(attempt: str, form: str) -> None:
    assert attempt_id_of(form.format(attempt)) == attempt


def test_worker_and_router_sample_alike() -> None:
    target = ProfileTarget(urls=("http://127.0.0.1:1",), share=0.3)
    attempts = [f"r{n}.{n:032x}" for n in range(300)]
    wanted = [target.wants(f"cmpl-{attempt}-0-{n:08x}") for n, attempt in enumerate(attempts)]
    assert wanted == [is_sampled(attempt, 0.3) for attempt in attempts]
    assert 50 < sum(wanted) < 140
    assert not any(ProfileTarget(share=1.0).wants(attempt) for attempt in attempts)


def test_a_share_is_a_share() -> None:
    with pytest.raises(InvalidValue, match=r"share is 1.5; must be from 0 to 1"):
        ProfileTarget(share=1.5)


def test_a_tally_counts_steps_by_layer_and_leaves_unknown_ones_uncovered() -> None:
    tally = DecodeTally(SHAPE)
    tally.add(np.array([[0, 1], [2, 3]], dtype=np.uint8))
    tally.add(np.array([[0, 2], [255, 255]], dtype=np.uint8))
    tally.add(np.array([[3, 0], [3, 1]], dtype=np.uint8))
    total = tally.total()
    assert (total.tokens, total.covered, tally.n_steps) == (3, 2, 3)
    assert total.counts.tolist() == [[2, 1, 0, 1], [0, 1, 1, 2]]


def test_the_target_file_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TargetFile, "CHECK_SECONDS", 0.0)
    path = tmp_path / "target.json"
    target = TargetFile(path)
    assert target.current() == ProfileTarget()
    path.write_text(json.dumps({"urls": ["http://router/v1/decode-profiles"], "share": 0.5}))
    assert target.current() == ProfileTarget(urls=("http://router/v1/decode-profiles",), share=0.5)
    path.write_text("{not json")
    assert target.current().share == 0.5
    path.write_text(json.dumps({"urls": [], "share": 0.25}))
    assert target.current() == ProfileTarget(share=0.25)


def test_settings_are_read_and_unknown_ones_refused() -> None:
    settings = PluginSettings.from_extra_config(
        {"worker_id": "d0", "decode_profiles": {"urls": ["http://r"], "share": 1.0}}
    )
    assert settings.worker_id == "d0"
    assert settings.decode_profiles == ProfileTarget(urls=("http://r",), share=1.0)
    assert settings.target_file() is None
    with pytest.raises(InvalidValue, match="worker_name"):
        PluginSettings.from_extra_config({"worker_name": "d0"})


class Router(HTTPServer):
    """Keeps what is posted."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: list[dict] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1/decode-profiles"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert isinstance(self.server, Router)
        self.server.bodies.append(json.loads(body))
        self.send_response(202)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def router() -> Iterator[Router]:
    with Router() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def profile(request_id: str) -> DecodeProfile:
    tally = DecodeTally(SHAPE)
    tally.add(np.array([[0, 1], [2, 3]], dtype=np.uint8))
    counts = EncodedCounts.from_counts(tally.total())
    return DecodeProfile(request_id=request_id, worker_id="d0", steps=1, counts=counts)


def test_profiles_reach_every_router(router: Router) -> None:
    push = ProfilePush()
    for n in range(3):
        push.offer(profile(f"r{n}"), ("http://127.0.0.1:1/nobody", router.url))
    push.close()
    sent = [each for body in router.bodies for each in body["profiles"]]
    assert [each["request_id"] for each in sent] == ["r0", "r1", "r2"]
    assert (push.n_pushed, push.n_dropped) == (3, 0)


def test_profiles_nobody_takes_are_dropped_and_counted() -> None:
    push = ProfilePush()
    push.offer(profile("r0"), ("http://127.0.0.1:1/nobody",))
    push.close()
    assert (push.n_pushed, push.n_dropped) == (0, 1)


def test_a_push_that_never_had_a_profile_ends_at_once() -> None:
    push = ProfilePush()
    push.close()
    assert (push.n_pushed, push.n_dropped) == (0, 0)
