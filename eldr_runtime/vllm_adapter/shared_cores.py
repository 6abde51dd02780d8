"""Lets vLLM's processes rest while they wait: for several workers on a few cores, as on a CPU.

Two of its loops burn a core each while there is nothing to do, and workers that share cores starve each other
by them, until the leases of their KV expire:

- NIXL's Python wrapper fixes the pause of its progress thread at zero.
- For a second after each message the engine and its worker look for the next without a pause.
"""

import importlib
import time
from types import ModuleType

from vllm.distributed.device_communicators import shm_broadcast

NIXL_PAUSE_MICROSECONDS = 1_000
MESSAGE_PAUSE_SECONDS = 1e-4  # a step of a small model takes some milliseconds


def share_cores() -> None:
    """Make both loops of this process rest; where NIXL is not installed, the one that is there."""
    for name in ("nixl", "nixl_cu12"):
        try:
            api = importlib.import_module(f"{name}._api")
        except ImportError:
            continue
        _slow_down(api.nixlBind)
    # Not by its own way of waiting, on a socket: it may miss a message, and then stands still for a while.
    shm_broadcast.sched_yield = _rest


def _slow_down(bindings: ModuleType) -> None:
    make = bindings.nixlAgent
    if hasattr(make, "eldr_shares_cores"):
        return

    def make_with_pause(name: str, config: object) -> object:
        config.pthrDelay = NIXL_PAUSE_MICROSECONDS  # type: ignore[attr-defined]
        return make(name, config)

    make_with_pause.eldr_shares_cores = True  # type: ignore[attr-defined]
    setattr(bindings, "nixlAgent", make_with_pause)  # noqa: B010  it is no attribute that mypy knows


def _rest() -> None:
    time.sleep(MESSAGE_PAUSE_SECONDS)
