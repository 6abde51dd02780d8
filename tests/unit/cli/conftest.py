import json
from collections.abc import Callable
from pathlib import Path

import pytest

from eldr_runtime.cli.main import run

SMALL = ["--requests", "96", "--layers", "3", "--experts", "16", "--top-k", "2"]


@pytest.fixture(scope="session")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small generated trace pack with topics."""
    path = tmp_path_factory.mktemp("packs") / "balanced.safetensors"
    assert run(["traces", "generate", "--workload", "balanced", *SMALL, "--output", str(path)]) == 0
    return path


@pytest.fixture
def run_json(capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, object]]:
    """Run a command with --json and return the one document it printed."""

    def run_and_read(*arguments: str | Path) -> dict[str, object]:
        assert run([*map(str, arguments), "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert isinstance(document, dict)
        return document

    return run_and_read
