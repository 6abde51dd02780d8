"""The environment of its own in which vLLM's CPU build and the plugin are installed."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import Distribution, distribution
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from eldr_runtime.errors import UnsupportedEngine

SCRIPT = Path(__file__).parent / "make_cpu_environment.sh"
MARK = ".installed"


def ensure_cpu_environment(folder: Path, *, say: Callable[[str], None]) -> Path:
    """Return the interpreter of the environment, made now if it is not there or was left half made.

    Raises `UnsupportedEngine` if it cannot be made.
    """
    if not (folder / MARK).exists():
        say(f"installing vLLM's CPU build into {folder}: 3.4 GB, some minutes")
        _make(folder)
    return folder.absolute() / "bin" / "python"


def own_requirement(installed: Distribution) -> tuple[str, ...]:
    """Return what pip installs this project from again: its checkout, or its release."""
    text = installed.read_text("direct_url.json")
    origin = json.loads(text) if text else {}
    path = url2pathname(urlsplit(origin.get("url", "")).path)
    if not path:
        return (f"eldr=={installed.version}",)
    is_editable = origin.get("dir_info", {}).get("editable", False)
    return ("--editable", path) if is_editable else (path,)


def _make(folder: Path) -> None:
    command = ["bash", str(SCRIPT), str(folder), *own_requirement(distribution("eldr"))]
    # The interpreter below a virtual environment: one made from within another would lean on it.
    base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    try:
        subprocess.run(command, check=True, env={**os.environ, "PYTHON": str(base)})
    except subprocess.CalledProcessError as error:
        raise UnsupportedEngine(
            f"{folder} could not be made: {SCRIPT.name} ended with {error.returncode}"
        ) from error
