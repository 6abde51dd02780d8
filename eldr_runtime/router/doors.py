"""Who may come in: not more requests than the router takes, and nobody once it is stopping."""

from collections.abc import Iterator
from contextlib import contextmanager

from eldr_runtime.router.errors import NoWorker, Overloaded


class Doors:
    """Counts the requests inside.

    Examples
    --------
    >>> doors = Doors(max_inside=2)
    >>> with doors.enter():
    ...     doors.n_inside
    1
    >>> doors.n_inside
    0
    """

    def __init__(self, max_inside: int) -> None:
        self.n_inside = 0
        self._max_inside = max_inside
        self._is_closed = False

    def close(self) -> None:
        """Let nobody in from now on."""
        self._is_closed = True

    @contextmanager
    def enter(self) -> Iterator[None]:
        """Count one request as inside while the block runs; raises Overloaded or NoWorker instead."""
        if self._is_closed:
            raise NoWorker("the router is stopping")
        if self.n_inside >= self._max_inside:
            raise Overloaded(f"{self.n_inside} requests are in flight, the router's limit")
        self.n_inside += 1
        try:
            yield
        finally:
            self.n_inside -= 1
