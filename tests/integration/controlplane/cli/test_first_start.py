"""What `eldr up` and `eldr controlplane` do to a database before anybody can speak to them."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from controlplane.cli.engines import SimulatedEngine
from controlplane.cli.main import run
from controlplane.cli.run_folder import FolderOfOtherModel, Keys, RunFolder
from controlplane.cli.stack import Stack, StackSettings, prepare_database
from controlplane.client import ControlPlaneClient
from controlplane.domain.alerts import Role
from controlplane.services.manage_keys import authenticate, list_keys
from controlplane.storage.database import Database
from eldr_runtime.errors import UnreadableFile

SERVE = (sys.executable, "-m", "controlplane.cli.main", "controlplane", "--migrate")
START_SECONDS = 120


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(path=tmp_path / "data")
    folder.make()
    return folder


def test_the_first_start_makes_three_keys_and_the_second_none(
    folder: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    made = prepare_database(folder)
    assert capsys.readouterr().err.split()[-1] == made.admin
    assert prepare_database(folder) == made == folder.read_keys()
    assert capsys.readouterr().err == ""
    database = Database(folder.database_url)
    with database.read() as session:
        keys = list_keys(session, None, 10).items
        roles = {
            authenticate(session, secret, keys[0].created_at).role
            for secret in (made.admin, made.operator, made.service)
        }
    database.close()
    assert len(keys) == 3
    assert roles == {Role.ADMIN, Role.OPERATOR, Role.SERVICE}


def test_a_folder_whose_keys_are_gone_is_refused_and_makes_no_new_ones(folder: RunFolder) -> None:
    prepare_database(folder)
    folder.keys_file.unlink()
    with pytest.raises(UnreadableFile, match=r"keys\.json is not there"):
        prepare_database(folder)
    assert not folder.keys_file.exists()


def test_a_folder_with_the_fleet_of_another_model_is_refused_before_workers_are(
    control_plane, admin, folder: RunFolder
) -> None:
    stack = Stack(StackSettings(folder=folder), Keys(admin="a", operator="o", service="s"))
    with ControlPlaneClient(control_plane.url, control_plane.secret_of(Role.ADMIN), "demo") as client:
        stack.ensure_fleet(client)
        stack.ensure_fleet(client)
        assert [fleet.shape for fleet in client.fleets()] == [SimulatedEngine().shape]
        other = SimulatedEngine(shape=replace(SimulatedEngine().shape, n_layers=24))
        stack = Stack(StackSettings(folder=folder, engine=other), stack.keys)
        with pytest.raises(FolderOfOtherModel, match="give another folder with --data"):
            stack.ensure_fleet(client)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqlite:///{tmp_path}/empty.db", "the schema is at revision None"),
        ("sqlite:///{tmp_path}/nowhere/eldr.db", "does not answer"),
        ("mysql://somewhere/eldr", "must be sqlite or postgresql"),
    ],
)
def test_a_database_that_cannot_be_used_is_one_line_and_status_2(
    url: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch
) -> None:
    monkeypatch.setenv("ELDR_DATABASE_URL", url.format(tmp_path=tmp_path))
    assert run(["controlplane"]) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert len(errors.splitlines()) == 1


def test_the_control_plane_makes_its_admin_key_once(tmp_path: Path) -> None:
    with serving(tmp_path) as (first, url):
        secret = first.read_text().split("admin key, shown this once: ")[1].split()[0]
        answer = httpx.get(
            f"{url}/v1/keys", headers={"Authorization": f"Bearer {secret}"}, timeout=10, trust_env=False
        )
        assert [key["name"] for key in answer.json()["items"]] == ["admin"]
    with serving(tmp_path) as (second, _):
        assert "admin key" not in second.read_text()


@contextmanager
def serving(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """Run `eldr controlplane`; answers what it writes and where it listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    errors = tmp_path / f"errors-{port}.txt"
    environment = {
        **os.environ,
        "ELDR_DATABASE_URL": f"sqlite:///{tmp_path}/served.db",
        "ELDR_PORT": str(port),
    }
    with (
        errors.open("wb") as stream,
        subprocess.Popen(SERVE, stdout=stream, stderr=stream, env=environment) as process,
    ):
        try:
            deadline = time.monotonic() + START_SECONDS
            while not _is_ready(f"http://127.0.0.1:{port}/readyz"):
                assert process.poll() is None, errors.read_text()
                assert time.monotonic() < deadline, errors.read_text()
                time.sleep(0.05)
            yield errors, f"http://127.0.0.1:{port}"
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5, trust_env=False).is_success
    except httpx.TransportError:
        return False
