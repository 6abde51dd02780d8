"""Lets NIXL's progress thread rest between its looks: for several workers on a few cores, as in tests.

NIXL's Python wrapper fixes the pause at zero, so that the thread of each idle worker burns a core, and
workers that share cores starve each other until the leases of their KV expire.
"""

import importlib
from types import ModuleType


def slow_down_nixl(pause_microseconds: int) -> None:
    """Make every NIXL agent of this process pause; does nothing where NIXL is not installed."""
    for name in ("nixl", "nixl_cu12"):
        try:
            api = importlib.import_module(f"{name}._api")
        except ImportError:
            continue
        _patch(api.nixlBind, pause_microseconds)


def _patch(bindings: ModuleType, pause_microseconds: int) -> None:
    make = bindings.nixlAgent
    if hasattr(make, "eldr_pause_microseconds"):
        return

    def make_with_pause(name: str, config: object) -> object:
        config.pthrDelay = pause_microseconds  # type: ignore[attr-defined]
        return make(name, config)

    make_with_pause.eldr_pause_microseconds = pause_microseconds  # type: ignore[attr-defined]
    setattr(bindings, "nixlAgent", make_with_pause)  # noqa: B010  it is no attribute that mypy knows
