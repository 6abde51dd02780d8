from collections.abc import Callable
from typing import NamedTuple

import pytest

from controlplane.cli.main import run


class Ended(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture
def eldr(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ended]:
    """Run one command of `eldr` with no key in the environment."""
    monkeypatch.delenv("ELDR_API_KEY", raising=False)

    def run_and_read(*arguments: object) -> Ended:
        status = run([str(argument) for argument in arguments])
        return Ended(status, *capsys.readouterr())

    return run_and_read
