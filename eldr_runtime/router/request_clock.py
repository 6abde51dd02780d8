"""Times of one request: when it came, when its first and its last content left."""

import time


class RequestClock:
    """Time to first token and time per output token of one request, as the router defines them.

    TTFT is the first content chunk minus arrival. TPOT is the time from the first to the last content chunk
    over the completion tokens less one; the tokens come from `usage`, since a chunk may carry several.

    Examples
    --------
    >>> clock = RequestClock(arrived_seconds=10.0)
    >>> clock.saw_content(10.5)
    >>> clock.saw_content(12.5)
    >>> clock.ttft_ms, clock.tpot_ms(completion_tokens=5)
    (500.0, 500.0)
    """

    __slots__ = ("arrived_seconds", "first_content_seconds", "last_content_seconds")

    def __init__(self, arrived_seconds: float) -> None:
        self.arrived_seconds = arrived_seconds
        self.first_content_seconds: float | None = None
        self.last_content_seconds: float | None = None

    @classmethod
    def started(cls) -> "RequestClock":
        """Return a clock that starts now."""
        return cls(now_seconds())

    def saw_content(self, at_seconds: float) -> None:
        """Note that content arrived from the decode worker."""
        if self.first_content_seconds is None:
            self.first_content_seconds = at_seconds
        self.last_content_seconds = at_seconds

    @property
    def ttft_ms(self) -> float | None:
        """Time to first token, None before it."""
        if self.first_content_seconds is None:
            return None
        return (self.first_content_seconds - self.arrived_seconds) * 1000.0

    def tpot_ms(self, completion_tokens: int) -> float | None:
        """Time per output token, None with fewer than two tokens."""
        if self.first_content_seconds is None or self.last_content_seconds is None or completion_tokens < 2:
            return None
        return (self.last_content_seconds - self.first_content_seconds) * 1000.0 / (completion_tokens - 1)


def now_seconds() -> float:
    """Return the monotonic time; the loop's own clock has milliseconds only and stands still in a turn."""
    return time.perf_counter()
