"""KV that prefill workers hold for a decode worker to pull, until pulled or until the lease ends."""

import itertools
from collections.abc import Callable, Sequence

BLOCKS_ARE_HELD_SECONDS = 30.0  # NIXL's default


class KvLeases:
    """Leases of one prefill engine, by the ids of their blocks."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._next_block = itertools.count(1)
        self._expires_at_seconds: dict[int, float] = {}

    def grant(self, n_blocks: int) -> list[int]:
        """Return the ids of newly held blocks."""
        blocks = [next(self._next_block) for _ in range(n_blocks)]
        self._expires_at_seconds[blocks[0]] = self._clock() + BLOCKS_ARE_HELD_SECONDS
        return blocks

    def release(self, blocks: Sequence[object]) -> bool:
        """Let go of pulled blocks; False if no such lease runs (any more)."""
        self._expire()
        first = blocks[0] if blocks else None
        return isinstance(first, int) and self._expires_at_seconds.pop(first, None) is not None

    def n_held(self) -> int:
        """Return the leases that still run."""
        self._expire()
        return len(self._expires_at_seconds)

    def _expire(self) -> None:
        now_seconds = self._clock()
        while self._expires_at_seconds:
            oldest = next(iter(self._expires_at_seconds))  # granted first, so the first to end
            if self._expires_at_seconds[oldest] > now_seconds:
                return
            del self._expires_at_seconds[oldest]
