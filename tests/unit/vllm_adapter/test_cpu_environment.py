import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from eldr_runtime.errors import UnsupportedEngine
from eldr_runtime.vllm_adapter import cpu_environment
from eldr_runtime.vllm_adapter.cpu_environment import SCRIPT, ensure_cpu_environment, own_requirement


@dataclass
class Installed:
    """What pip has noted of a distribution."""

    direct_url: str | None
    version: str = "1.2.3"

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return self.direct_url


@pytest.mark.parametrize(
    ("origin", "requirement"),
    [
        (None, ("eldr==1.2.3",)),
        ({"url": "file:///a%20b", "dir_info": {"editable": True}}, ("--editable", "/a b")),
        ({"url": "file:///a", "dir_info": {}}, ("/a",)),
    ],
)
def test_project_is_installed_from_where_it_came(origin, requirement: tuple[str, ...]) -> None:
    assert own_requirement(Installed(origin and json.dumps(origin))) == requirement


def test_environment_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / ".installed").touch()
    said: list[str] = []
    assert ensure_cpu_environment(tmp_path, say=said.append) == tmp_path / "bin" / "python"
    assert said == []


def test_environment_that_cannot_be_made_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "make.sh"
    script.write_text("exit 3\n")
    monkeypatch.setattr(cpu_environment, "SCRIPT", script)
    said: list[str] = []
    with pytest.raises(UnsupportedEngine, match="ended with 3"):
        ensure_cpu_environment(tmp_path / "env", say=said.append)
    assert "3.4 GB" in said[0]


def test_script_is_sound() -> None:
    subprocess.run(["bash", "-n", str(SCRIPT)], check=True)
