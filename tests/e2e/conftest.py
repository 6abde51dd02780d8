"""A whole stack of real processes on free ports, with a load generator where a test asks for one."""

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import numpy as np
import pytest

from controlplane.cli.engines import SimulatedEngine
from controlplane.cli.launch import Child
from controlplane.cli.run_folder import RunFolder
from controlplane.cli.stack import Stack, StackSettings, running_stack
from controlplane.client import ControlPlaneClient
from controlplane.domain.versions import Promote, Version
from eldr_runtime.centroid_version import CentroidVersion, VersionOrigin, to_bytes
from eldr_runtime.json_values import from_json_value
from eldr_runtime.signature import SignatureTransform, TransformName

N_DECODE = 4
SHAPE = SimulatedEngine().shape
TIMEOUT_SECONDS = 60.0
# Longer than a metrics window of the demo and the time until it is delivered.
SETTLE_SECONDS = 5.0


@dataclass
class Running:
    """A running stack and what the tests do to it."""

    stack: Stack
    client: ControlPlaneClient

    def child(self, name: str) -> Child:
        return next(child for child in self.stack.children.running if child.name == name)

    def end(self, name: str, number: signal.Signals) -> None:
        """Send one process a signal and wait until it has ended."""
        child = self.child(name)
        child.process.send_signal(number)
        child.process.wait(TIMEOUT_SECONDS)
        self.stack.children.running.remove(child)

    def get(self, name: str, path: str) -> Any:
        answer = httpx.get(self.stack.url(name) + path, timeout=10, trust_env=False)
        answer.raise_for_status()
        return answer.json()

    def router_status(self) -> dict[str, Any]:
        return self.get("router", "/eldr/status")

    def workers_in_fleet(self) -> set[str]:
        return {worker["id"] for worker in self.get("fleet", "/simulated/workers")["workers"]}

    def routed_workers(self) -> set[str]:
        """Decode workers that the control plane tells routers to use."""
        config = self._control_plane("/routing-config")
        return {
            worker["id"]
            for worker in config["workers"]
            if worker["role"] == "decode" and worker["state"] == "ready"
        }

    def decisions(self, since: datetime) -> list[dict[str, Any]]:
        """All sampled decisions on requests that arrived since a moment; every request is sampled."""
        items: list[dict[str, Any]] = []
        query = {"since": since.isoformat(), "limit": "500"}
        while True:
            page = self._control_plane("/decisions", query)
            items += page["items"]
            if page["next_cursor"] is None:
                return items
            query["cursor"] = page["next_cursor"]

    def n_requests_in_metrics(self) -> int:
        """Requests of the last hour, as the control plane's metrics count them."""
        points = self.client.metrics("fleet", datetime.now(UTC) - timedelta(hours=1))
        return sum(point.n_requests for point in points)

    def until(self, what: str, is_so: Callable[[], bool], timeout_seconds: float = TIMEOUT_SECONDS) -> float:
        """Wait until something is so; answers the seconds it took."""
        begin = time.monotonic()
        self.stack.children.wait_for(what, is_so, timeout_seconds)
        return time.monotonic() - begin

    def settled_requests_in_metrics(self) -> int:
        """Count the same, once no window of earlier traffic is on its way any more."""
        n = self.n_requests_in_metrics()
        while True:
            time.sleep(SETTLE_SECONDS)
            before, n = n, self.n_requests_in_metrics()
            if n == before:
                return n

    def _control_plane(self, path: str, query: dict[str, str] | None = None) -> Any:
        url = f"{self.stack.url('controlplane')}/v1/fleets/demo{path}"
        headers = {"Authorization": f"Bearer {self.stack.keys.operator}"}
        answer = httpx.get(url, params=query, headers=headers, timeout=10, trust_env=False)
        answer.raise_for_status()
        return answer.json()

    @contextmanager
    def load(self) -> Iterator["Load"]:
        """Send traffic while the block runs, and then let every request end."""
        load = Load(running=self, since=datetime.now(UTC))
        self.stack.start_load()
        yield load
        log_file = self.child("load").log_file
        self.end("load", signal.SIGTERM)
        text = log_file.read_text()
        load.summary = json.loads(text[text.rindex("\n{\n") :])
        log_file.unlink()


@dataclass
class Load:
    """Traffic; `summary` is what the load generator says at its end."""

    running: Running
    since: datetime
    summary: dict[str, Any] | None = None

    def status(self) -> dict[str, Any]:
        return self.running.get("load", "/status")

    def finish(self, n_more: int) -> None:
        """Wait until so many more requests have ended well."""
        wanted = self.status()["finished"] + n_more
        self.running.until(f"{n_more} requests", lambda: self.status()["finished"] >= wanted)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Two prefill and four decode workers, a version on every one of them, no load yet."""
    settings = StackSettings(
        folder=RunFolder(path=tmp_path_factory.mktemp("stack") / "data"),
        n_decode=N_DECODE,
        rate_per_second=12.0,
        has_dashboard=False,
        control_plane_port=0,
        router_port=0,
    )
    with running_stack(settings) as stack, stack.client(stack.keys.operator) as client:
        _promote_a_version(stack, client)
        yield Running(stack=stack, client=client)


def _promote_a_version(stack: Stack, client: ControlPlaneClient) -> None:
    """Upload centroids of no meaning: where requests go is no matter here, only that they are routed."""
    answer = httpx.post(
        f"{stack.url('controlplane')}/v1/fleets/demo/versions",
        content=to_bytes(_version()),
        headers={
            "Authorization": f"Bearer {stack.keys.operator}",
            "Content-Type": "application/octet-stream",
            "X-Reason": "for the tests",
        },
        timeout=30,
        trust_env=False,
    )
    answer.raise_for_status()
    version = from_json_value(Version, answer.json())
    client.promote(version.id, Promote(reason="for the tests", is_override=True))


def _version() -> CentroidVersion:
    draws = np.random.default_rng(1).random((N_DECODE, SHAPE.n_layers * SHAPE.n_experts), dtype=np.float32)
    return CentroidVersion(
        shape=SHAPE,
        transform=SignatureTransform(
            name=TransformName.COUNT_IDF,
            weights=np.ones(SHAPE.counts_shape, dtype=np.float32),
            layer_mask=np.ones(SHAPE.n_layers, dtype=np.bool_),
        ),
        centroids=draws / np.linalg.norm(draws, axis=1, keepdims=True),
        mean_use=np.full(SHAPE.counts_shape, SHAPE.top_k / SHAPE.n_experts, dtype=np.float32),
        seed=1,
        origin=VersionOrigin.CALIBRATION,
        parent_hash=None,
        n_requests=100,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
