"""What became of the requests of a load generator, counted exactly, and how fast they were."""

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from eldr_runtime.latency_histogram import LatencyHistogram

RECENT_SECONDS = 30.0
MAX_RECENT = 20_000
ERRORS_KEPT = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestError:
    """One failed request."""

    request_id: str
    at_unix_seconds: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadStatus:
    """Answer of `GET /status`. Latencies are of requests that ended in the last 30 s; None without any."""

    sent: int
    finished: int
    failed: int
    in_flight: int
    elapsed_seconds: float
    rate_per_second: float
    tpot_p50_ms: float | None
    tpot_p99_ms: float | None
    ttft_p50_ms: float | None
    ttft_p99_ms: float | None
    mix: "MixStatus"
    failures: dict[str, int]
    errors: tuple[RequestError, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MixStatus:
    """Shares the next request is drawn by."""

    unseen_topic: str | None
    unseen_topic_share: float
    topic_shares: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSummary:
    """A whole run. `tpot` and `ttft` are over all finished requests; None without any."""

    sent: int
    finished: int
    failed: int
    seconds: float
    output_tokens: int
    output_tokens_per_second: float
    tpot_p50_ms: float | None
    tpot_p99_ms: float | None
    tpot_mean_ms: float | None
    ttft_p50_ms: float | None
    ttft_p99_ms: float | None
    failures: dict[str, int]
    errors: tuple[RequestError, ...]


class LoadStatistics:
    """Counts of a run. A request is sent, then finished or failed, and in flight in between."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started_at_seconds = clock()
        self._recent: deque[tuple[float, float, float | None]] = deque(maxlen=MAX_RECENT)
        self._ttft, self._tpot = LatencyHistogram(), LatencyHistogram()
        self._output_tokens = 0
        self._failures: Counter[str] = Counter()
        self._errors: deque[RequestError] = deque(maxlen=ERRORS_KEPT)
        self.sent = 0
        self.finished = 0

    @property
    def failed(self) -> int:
        """Requests that did not end as asked."""
        return self._failures.total()

    @property
    def in_flight(self) -> int:
        """Requests sent and not ended."""
        return self.sent - self.finished - self.failed

    def count_sent(self) -> None:
        """Count a request whose time to be sent has come."""
        self.sent += 1

    def count_finished(self, *, ttft_ms: float, tpot_ms: float | None, output_tokens: int) -> None:
        """Count a request that ended as asked; one of a single token has no time per token."""
        self.finished += 1
        self._output_tokens += output_tokens
        self._recent.append((self._clock(), ttft_ms, tpot_ms))
        self._ttft.record_ms(ttft_ms)
        if tpot_ms is not None:
            self._tpot.record_ms(tpot_ms)

    def count_failed(self, request_id: str, reason: str) -> None:
        """Count a request that failed; the part of the reason before a colon names its kind."""
        self._failures[reason.partition(":")[0]] += 1
        self._errors.append(RequestError(request_id=request_id, at_unix_seconds=time.time(), reason=reason))

    def status(self, *, mix: MixStatus, rate_per_second: float) -> LoadStatus:
        """Return the state of the run now."""
        since_seconds = self._clock() - RECENT_SECONDS
        recent = [row for row in self._recent if row[0] >= since_seconds]
        ttft = sorted(row[1] for row in recent)
        tpot = sorted(row[2] for row in recent if row[2] is not None)
        return LoadStatus(
            sent=self.sent,
            finished=self.finished,
            failed=self.failed,
            in_flight=self.in_flight,
            elapsed_seconds=self._clock() - self._started_at_seconds,
            rate_per_second=rate_per_second,
            tpot_p50_ms=quantile(tpot, 0.5),
            tpot_p99_ms=quantile(tpot, 0.99),
            ttft_p50_ms=quantile(ttft, 0.5),
            ttft_p99_ms=quantile(ttft, 0.99),
            mix=mix,
            failures=dict(self._failures),
            errors=tuple(self._errors),
        )

    def summary(self) -> LoadSummary:
        """Return the figures of the whole run."""
        seconds = self._clock() - self._started_at_seconds
        return LoadSummary(
            sent=self.sent,
            finished=self.finished,
            failed=self.failed,
            seconds=seconds,
            output_tokens=self._output_tokens,
            output_tokens_per_second=self._output_tokens / seconds if seconds > 0 else 0.0,
            tpot_p50_ms=self._tpot.quantile_ms(0.5),
            tpot_p99_ms=self._tpot.quantile_ms(0.99),
            tpot_mean_ms=self._tpot.mean_ms(),
            ttft_p50_ms=self._ttft.quantile_ms(0.5),
            ttft_p99_ms=self._ttft.quantile_ms(0.99),
            failures=dict(self._failures),
            errors=tuple(self._errors),
        )


def quantile(ascending: Sequence[float], share: float) -> float | None:
    """Return the smallest value that at least `share` of the values do not exceed; None without values.

    Examples
    --------
    >>> quantile([1.0, 2.0, 3.0, 4.0], 0.5), quantile([], 0.5)
    (2.0, None)
    """
    if not ascending:
        return None
    return ascending[max(0, -int(-share * len(ascending) // 1) - 1)]
