"""The operator's commands against a control plane over HTTP; SQLite alone, as the API is tested on both."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from controlplane.cli.main import run
from controlplane.domain.alerts import Role


class Ended(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        assert self.status == 0, self.err
        return json.loads(self.out)


@pytest.fixture
def database_url(sqlite_template: Path, tmp_path: Path) -> str:
    path = tmp_path / "eldr.db"
    shutil.copyfile(sqlite_template, path)
    return f"sqlite:///{path}"


@pytest.fixture
def eldr_as(
    control_plane, fleet: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[[Role], Callable[..., Ended]]:
    """`eldr_as(role)(*arguments)` runs one command with a key of that role in the environment."""

    def of_role(role: Role) -> Callable[..., Ended]:
        def run_and_read(*arguments: object) -> Ended:
            monkeypatch.setenv("ELDR_API_KEY", control_plane.secret_of(role))
            where = ("--control-plane", control_plane.url, "--fleet", fleet)
            status = run([*map(str, arguments), *where])
            return Ended(status, *capsys.readouterr())

        return run_and_read

    return of_role


@pytest.fixture
def eldr(eldr_as: Callable[[Role], Callable[..., Ended]]) -> Callable[..., Ended]:
    return eldr_as(Role.OPERATOR)
