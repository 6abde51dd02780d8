"""Leaves out the files that only vLLM can load where it is not installed; its own environment tests them."""

import importlib.util
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent


def _loaded_by_the_engine() -> list[str]:
    """Read their list from the contract that nothing else imports them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (contract,) = (one for one in contracts if one["id"] == "plugin-is-loaded-by-the-engine")
    return [f"{ROOT / name.replace('.', '/')}.py" for name in contract["protected_modules"]]


collect_ignore = _loaded_by_the_engine() if importlib.util.find_spec("vllm") is None else []
