"""Counts of finished requests and decode steps in windows, each of which becomes one metrics blob."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from eldr_runtime.metrics_blob import ActiveExperts, MetricsBlob, MetricsKey, MetricsRow
from eldr_runtime.metrics_recorder import FinishedRequest, MetricsRecorder


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowKey:
    """What a blob never mixes: a metrics window, an experiment window, and its washout with the rest."""

    start: int
    seconds: int
    experiment_window: int
    is_washout: bool

    @classmethod
    def at(cls, utc_seconds: float, seconds: int, *, experiment_window: int, is_washout: bool) -> "WindowKey":
        """Return the window that a moment falls into."""
        start = int(utc_seconds // seconds) * seconds
        return cls(start=start, seconds=seconds, experiment_window=experiment_window, is_washout=is_washout)

    def is_over(self, utc_seconds: float) -> bool:
        """Return whether nothing can fall into the window any more."""
        return utc_seconds >= self.start + self.seconds


@dataclass(slots=True)
class _Window:
    recorder: MetricsRecorder = field(default_factory=MetricsRecorder)
    experts: dict[MetricsKey, ActiveExperts] = field(default_factory=dict)


class BlobWindows:
    """The windows that are open, and the numbers of their blobs.

    Parameters
    ----------
    first_sequence
        Where numbering begins. A router that restarts within a window must not repeat the numbers of its
        last life, so the caller draws it.
    """

    def __init__(self, router_id: str, first_sequence: int) -> None:
        self._router_id = router_id
        self._sequence = first_sequence
        self._windows: dict[WindowKey, _Window] = {}

    def record(self, key: WindowKey, request: FinishedRequest) -> None:
        """Count a request that ended."""
        self._window(key).recorder.record(request)

    def add_steps(self, key: WindowKey, row_key: MetricsKey, experts: ActiveExperts) -> None:
        """Add decode steps of a worker."""
        by_key = self._window(key).experts
        known = by_key.get(row_key)
        same = known is not None and len(known.sum_by_layer) == len(experts.sum_by_layer)
        by_key[row_key] = known.plus(experts) if known is not None and same else experts

    def take(self, utc_seconds: float | None = None) -> tuple[MetricsBlob, ...]:
        """Close the windows that are over at a moment, all without one, and return their blobs."""
        over = [key for key in self._windows if utc_seconds is None or key.is_over(utc_seconds)]
        return tuple(self._blob(key, self._windows.pop(key)) for key in over)

    def _window(self, key: WindowKey) -> _Window:
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = _Window()
        return window

    def _blob(self, key: WindowKey, window: _Window) -> MetricsBlob:
        self._sequence += 1
        rows = {row.key: row for row in window.recorder.take()}
        for row_key, experts in window.experts.items():
            row = rows.get(row_key, MetricsRow(key=row_key))
            rows[row_key] = replace(row, active_experts=experts)
        return MetricsBlob(
            router_id=self._router_id,
            window_start=datetime.fromtimestamp(key.start, UTC),
            window_seconds=key.seconds,
            experiment_window=key.experiment_window,
            sequence=self._sequence,
            is_washout=key.is_washout,
            rows=tuple(rows.values()),
        )
