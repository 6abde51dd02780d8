"""Counts finished requests into metrics rows, for one router and one blob at a time."""

from dataclasses import dataclass, field

from eldr_runtime.latency_histogram import LatencyHistogram
from eldr_runtime.metrics_blob import MetricsKey, MetricsRow


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRequest:
    """What is counted of one request.

    Parameters
    ----------
    worker
        The decode worker; None where none was chosen, which counts nowhere.
    cluster
        The nearest centroid, None without a signature.
    ttft_ms, tpot_ms
        None where not reached.
    """

    worker: str | None
    cluster: int | None
    version: str | None
    arm: str
    is_error: bool
    output_tokens: int
    band_size: int
    ttft_ms: float | None
    tpot_ms: float | None


@dataclass(slots=True)
class _Tally:
    n_requests: int = 0
    n_errors: int = 0
    n_without_signature: int = 0
    output_tokens: int = 0
    band_size_sum: int = 0
    ttft: LatencyHistogram = field(default_factory=LatencyHistogram)
    tpot: LatencyHistogram = field(default_factory=LatencyHistogram)

    def add(self, request: FinishedRequest) -> None:
        self.n_requests += 1
        self.n_errors += request.is_error
        self.n_without_signature += request.cluster is None
        self.output_tokens += request.output_tokens
        self.band_size_sum += request.band_size
        if request.ttft_ms is not None:
            self.ttft.record_ms(request.ttft_ms)
        if request.tpot_ms is not None:
            self.tpot.record_ms(request.tpot_ms)


class MetricsRecorder:
    """Adds requests up by worker and by cluster; `take` hands the rows over and starts anew."""

    def __init__(self) -> None:
        self._tallies: dict[MetricsKey, _Tally] = {}

    def record(self, request: FinishedRequest) -> None:
        """Count one request in the row of its worker and in that of its cluster."""
        keys = []
        if request.worker is not None:
            keys.append(MetricsKey(worker=request.worker, version=request.version, arm=request.arm))
        if request.cluster is not None:
            keys.append(MetricsKey(cluster=request.cluster, version=request.version, arm=request.arm))
        for key in keys:
            tally = self._tallies.get(key)
            if tally is None:
                tally = self._tallies[key] = _Tally()
            tally.add(request)

    def take(self) -> tuple[MetricsRow, ...]:
        """Return the rows counted since the last call, and forget them."""
        tallies, self._tallies = self._tallies, {}
        return tuple(
            MetricsRow(
                key=key,
                n_requests=tally.n_requests,
                n_errors=tally.n_errors,
                n_without_signature=tally.n_without_signature,
                output_tokens=tally.output_tokens,
                band_size_sum=tally.band_size_sum,
                ttft_histogram=tally.ttft.to_base64(),
                tpot_histogram=tally.tpot.to_base64(),
            )
            for key, tally in tallies.items()
        )
