"""What routers count in windows of ten seconds, by worker and by cluster, each by version and arm.

A blob belongs to one router, one window, one experiment window. Blobs are idempotent by key and may arrive
in any order; merging rows of equal marginal, version and arm adds everything up.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Self

from eldr_runtime.errors import InvalidMessage
from eldr_runtime.json_values import check_wire_version, message_from_json, message_to_json
from eldr_runtime.latency_histogram import MAX_TEXT_CHARACTERS, LatencyHistogram

WINDOW_SECONDS = 10
NO_RECORDS = LatencyHistogram().to_base64()


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsKey:
    """What a row counts: one worker or one cluster, under one version and one arm.

    Parameters
    ----------
    worker, cluster
        Exactly one of the two is given.
    version
        Content hash, None without a version.
    """

    worker: str | None = None
    cluster: int | None = None
    version: str | None
    arm: str

    def __post_init__(self) -> None:
        if (self.worker is None) == (self.cluster is None):
            value = (self.worker, self.cluster)
            raise InvalidMessage(field="worker and cluster", value=value, limit="one given, the other null")
        if self.cluster is not None and self.cluster < 0:
            raise InvalidMessage(field="cluster", value=self.cluster, limit="0 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveExperts:
    """Active experts of sampled decode steps, as sums so that they add up.

    Parameters
    ----------
    n_steps
        Sampled steps.
    sum_by_layer
        Active experts summed over the steps, one number a layer.
    predicted_sum
        Expected active experts a layer (mean over layers) summed over the steps, None where not computed.
    batch_sum
        Batch sizes summed over the steps, None where not known.
    """

    n_steps: int
    sum_by_layer: tuple[float, ...]
    predicted_sum: float | None = None
    batch_sum: float | None = None

    def __post_init__(self) -> None:
        if self.n_steps < 1:
            raise InvalidMessage(field="n_steps", value=self.n_steps, limit="at least 1")
        if not self.sum_by_layer or min(self.sum_by_layer) < 0:
            raise InvalidMessage(
                field="sum_by_layer", value=self.sum_by_layer, limit="0 or more for each layer"
            )

        if self.batch_sum is not None and not self.batch_sum >= 0:
            raise InvalidMessage(field="batch_sum", value=self.batch_sum, limit="0 or more")

    @property
    def mean(self) -> float:
        """Active experts a layer, mean over layers and steps."""
        return math.fsum(self.sum_by_layer) / len(self.sum_by_layer) / self.n_steps

    def plus(self, other: "ActiveExperts") -> "ActiveExperts":
        """Return the sum of both; a prediction and the batch survive only where both have one."""
        if len(other.sum_by_layer) != len(self.sum_by_layer):
            limit = f"{len(self.sum_by_layer)}, as in the row it is added to"
            raise InvalidMessage(field="layers of sum_by_layer", value=len(other.sum_by_layer), limit=limit)
        predicted = [each.predicted_sum for each in (self, other) if each.predicted_sum is not None]
        batches = [each.batch_sum for each in (self, other) if each.batch_sum is not None]
        return ActiveExperts(
            n_steps=self.n_steps + other.n_steps,
            sum_by_layer=tuple(a + b for a, b in zip(self.sum_by_layer, other.sum_by_layer, strict=True)),
            predicted_sum=sum(predicted) if len(predicted) == 2 else None,
            batch_sum=sum(batches) if len(batches) == 2 else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsRow:
    """Counters and histograms of one key; the histograms are base64 text, opened by `ttft` and `tpot`.

    Parameters
    ----------
    n_requests
        Requests that ended in the window, errors among them.
    n_without_signature
        Of these, routed by load alone.
    band_size_sum
        Over all requests; divided by `n_requests` the mean size of the band.
    """

    key: MetricsKey
    n_requests: int = 0
    n_errors: int = 0
    n_without_signature: int = 0
    output_tokens: int = 0
    band_size_sum: int = 0
    ttft_histogram: str = NO_RECORDS
    tpot_histogram: str = NO_RECORDS
    active_experts: ActiveExperts | None = None

    def __post_init__(self) -> None:
        for name in ("n_requests", "n_errors", "n_without_signature", "output_tokens", "band_size_sum"):
            if getattr(self, name) < 0:
                raise InvalidMessage(field=name, value=getattr(self, name), limit="0 or more")
        for name in ("ttft_histogram", "tpot_histogram"):
            n_characters = len(getattr(self, name))
            if n_characters > MAX_TEXT_CHARACTERS:
                limit = f"at most {MAX_TEXT_CHARACTERS} characters"
                raise InvalidMessage(field=name, value=n_characters, limit=limit)

    def ttft(self) -> LatencyHistogram:
        """Open the histogram of times to first token."""
        return LatencyHistogram.from_base64(self.ttft_histogram)

    def tpot(self) -> LatencyHistogram:
        """Open the histogram of times per output token."""
        return LatencyHistogram.from_base64(self.tpot_histogram)


def merge_rows(rows: Iterable[MetricsRow]) -> tuple[MetricsRow, ...]:
    """Add up rows of equal key, in the order of their first appearance."""
    merged: dict[MetricsKey, MetricsRow] = {}
    for row in rows:
        merged[row.key] = _sum(merged[row.key], row) if row.key in merged else row
    return tuple(merged.values())


def _sum(one: MetricsRow, other: MetricsRow) -> MetricsRow:
    ttft, tpot = one.ttft(), one.tpot()
    ttft.merge(other.ttft())
    tpot.merge(other.tpot())
    experts = one.active_experts or other.active_experts
    if one.active_experts is not None and other.active_experts is not None:
        experts = one.active_experts.plus(other.active_experts)
    return MetricsRow(
        key=one.key,
        n_requests=one.n_requests + other.n_requests,
        n_errors=one.n_errors + other.n_errors,
        n_without_signature=one.n_without_signature + other.n_without_signature,
        output_tokens=one.output_tokens + other.output_tokens,
        band_size_sum=one.band_size_sum + other.band_size_sum,
        ttft_histogram=ttft.to_base64(),
        tpot_histogram=tpot.to_base64(),
        active_experts=experts,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobKey:
    """What makes a blob the same blob when it arrives again."""

    router_id: str
    window_start: datetime
    experiment_window: int
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsBlob:
    """One router's counts of one window.

    Parameters
    ----------
    window_start
        UTC; a multiple of `window_seconds` since the Unix epoch.
    experiment_window
        Index of the arm window all requests of the blob belong to.
    sequence
        Numbers the blobs of one router, window and experiment window.
    is_washout
        The requests fell in the washout of their arm window and do not count in the experiment.
    """

    WIRE_VERSION: ClassVar[int] = 1

    v: int = WIRE_VERSION
    router_id: str
    window_start: datetime
    window_seconds: int = WINDOW_SECONDS
    experiment_window: int
    sequence: int
    is_washout: bool
    rows: tuple[MetricsRow, ...]

    def __post_init__(self) -> None:
        check_wire_version(self.v, self.WIRE_VERSION)
        if not self.router_id:
            raise InvalidMessage(field="router_id", value=self.router_id, limit="a non-empty id")
        if self.window_seconds < 1:
            raise InvalidMessage(field="window_seconds", value=self.window_seconds, limit="at least 1")
        if self.window_start.tzinfo is None or self.window_start.timestamp() % self.window_seconds:
            limit = f"a time with its zone at a multiple of {self.window_seconds} s"
            raise InvalidMessage(field="window_start", value=self.window_start.isoformat(), limit=limit)
        for name in ("experiment_window", "sequence"):
            if getattr(self, name) < 0:
                raise InvalidMessage(field=name, value=getattr(self, name), limit="0 or more")
        if len({row.key for row in self.rows}) != len(self.rows):
            raise InvalidMessage(field="rows", value="a repeated key", limit="one row a key")

    @property
    def key(self) -> BlobKey:
        """The idempotency key: a second blob of equal key is a duplicate."""
        return BlobKey(
            router_id=self.router_id,
            window_start=self.window_start,
            experiment_window=self.experiment_window,
            sequence=self.sequence,
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read a blob from JSON text."""
        return message_from_json(cls, text)

    def to_json(self) -> str:
        """Write the blob as JSON text."""
        return message_to_json(self)
