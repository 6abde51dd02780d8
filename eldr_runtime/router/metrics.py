"""The router's own Prometheus figures."""

from collections import Counter as Tally
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_TTFT_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0)
_TPOT_SECONDS = (
    0.002,
    0.005,
    0.0075,
    0.01,
    0.0125,
    0.015,
    0.02,
    0.025,
    0.03,
    0.04,
    0.05,
    0.075,
    0.1,
    0.25,
    1.0,
)


class RouterMetrics:
    """Counters of one router in a registry of its own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.by_outcome: Tally[str] = Tally()
        self.by_unsigned_reason: Tally[str] = Tally()
        self._requests = Counter(
            "eldr_router_requests", "Requests by how they ended.", ["outcome"], registry=registry
        )
        self._unsigned = Counter(
            "eldr_router_routed_without_signature",
            "Requests routed by load alone, by reason.",
            ["reason"],
            registry=registry,
        )
        self._retries = Counter(
            "eldr_router_retries", "Legs asked of a second worker.", ["leg"], registry=registry
        )
        self._releases = Counter(
            "eldr_router_released_hand_offs",
            "Hand-offs given up because their client had left.",
            ["outcome"],
            registry=registry,
        )
        self._ttft = Histogram(
            "eldr_router_ttft_seconds",
            "Arrival to first content chunk.",
            buckets=_TTFT_SECONDS,
            registry=registry,
        )
        self._tpot = Histogram(
            "eldr_router_tpot_seconds", "Time per output token.", buckets=_TPOT_SECONDS, registry=registry
        )
        self._generation = Gauge(
            "eldr_router_config_generation", "Generation of the configuration in force.", registry=registry
        )
        self._dropped = Counter(
            "eldr_router_dropped", "Telemetry that could not be kept, by kind.", ["kind"], registry=registry
        )

    def show_in_flight(self, by_role: Mapping[str, Callable[[], Mapping[str, int]]]) -> None:
        """Export live in-flight counts, read when the page is."""
        self.registry.register(_InFlight(by_role))

    def ended(self, outcome: str, ttft_ms: float | None = None, tpot_ms: float | None = None) -> None:
        """Count a request that ended."""
        self.by_outcome[outcome] += 1
        self._requests.labels(outcome).inc()
        if ttft_ms is not None:
            self._ttft.observe(ttft_ms / 1000.0)
        if tpot_ms is not None:
            self._tpot.observe(tpot_ms / 1000.0)

    def unsigned(self, reason: str) -> None:
        """Count a request that was routed by load for want of a signature."""
        self.by_unsigned_reason[reason] += 1
        self._unsigned.labels(reason).inc()

    def retried(self, leg: str) -> None:
        """Count a leg that is asked of a second worker."""
        self._retries.labels(leg).inc()

    def released(self, *, succeeded: bool) -> None:
        """Count a hand-off given up."""
        self._releases.labels("released" if succeeded else "left to its lease").inc()

    def applied(self, generation: int) -> None:
        """Note the generation in force."""
        self._generation.set(generation)

    def dropped(self, kind: str, n: int = 1) -> None:
        """Count telemetry that was dropped."""
        self._dropped.labels(kind).inc(n)

    def to_text(self) -> bytes:
        """Return the page."""
        return generate_latest(self.registry)


class _InFlight(Collector):
    """Reads the counters themselves: a gauge beside them would be a second truth."""

    def __init__(self, by_role: Mapping[str, Callable[[], Mapping[str, int]]]) -> None:
        self._by_role = by_role

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Return one gauge by role and worker."""
        family = GaugeMetricFamily(
            "eldr_router_in_flight", "Requests in flight by worker.", labels=["role", "worker"]
        )
        for role, read in self._by_role.items():
            for worker_id, n in read().items():
                family.add_metric([role, worker_id], n)
        yield family
