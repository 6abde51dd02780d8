"""The batch of one decode worker: who is in it, and when its steps end. Pure: time is an argument.

All requests in flight step together, and a step takes what the latency model says for the expected union of
the batch, its size and its KV tokens. A step's end is the end of the step before plus its length, so late
callers catch up without drift. A request joins at the first step border at or after the moment it is ready.
"""

import heapq
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from eldr_runtime.array_types import Floats
from eldr_runtime.latency_model import LatencyModel
from eldr_runtime.simulated_fleet.expected_union_tracker import ExpectedUnionTracker

NOT_ADMITTED = -1


def next_border(n_tokens: int, interval_tokens: int, max_tokens: int) -> int:
    """Return how many tokens are out after the next chunk: the first alone, then `interval_tokens` each.

    Examples
    --------
    >>> borders = [0]
    >>> while borders[-1] < 10:
    ...     borders.append(next_border(borders[-1], 4, 10))
    >>> borders
    [0, 1, 5, 9, 10]
    """
    return min(n_tokens + interval_tokens if n_tokens else 1, max_tokens)


@dataclass(slots=True, kw_only=True, eq=False)
class DecodeSlot:
    """One request of a decode batch; mutable, written by its batch alone.

    `log_unused` is float64 `(n_layers, n_experts)`, `log(1 - p)` of one step. `n_tokens` moves at chunk
    borders only; `on_tokens` is called when it has moved.
    """

    ready_at_seconds: float
    log_unused: Floats
    prompt_tokens: int
    max_tokens: int
    interval_tokens: int
    on_tokens: Callable[[], None]
    n_tokens: int = 0
    admitted_at_step: int = NOT_ADMITTED
    is_gone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCounters:
    """Totals since the worker started; `distinct_experts` is float64 `(n_layers,)`, summed over steps."""

    n_steps: int
    batch_sum: int
    n_tokens: int
    distinct_experts: Floats


class DecodeBatch:
    """Requests that step together. Commands: submit, remove, advance. Times are seconds of one clock."""

    def __init__(self, *, n_layers: int, n_experts: int, latency: LatencyModel, max_running: int) -> None:
        self._latency = latency
        self._max_running = max_running
        self._union = ExpectedUnionTracker(n_layers=n_layers, n_experts=n_experts)
        self._waiting: list[tuple[float, int, DecodeSlot]] = []
        self._running: set[DecodeSlot] = set()
        self._due: dict[int, list[DecodeSlot]] = defaultdict(list)
        self._n_submitted = 0
        self._n_waiting = 0
        self._step_ends_at_seconds: float | None = None
        self._not_before_seconds = float("-inf")
        self._step_union = np.zeros(n_layers)
        self._step_mean_union = 0.0
        self._step_batch = 0
        self._is_union_stale = True
        self._n_steps_of_union = 0
        self._distinct_experts = np.zeros(n_layers)
        self._n_steps = 0
        self._batch_sum = 0
        self._n_tokens = 0
        self._kv_tokens = 0
        self.slow_factor = 1.0

    @property
    def n_running(self) -> int:
        """Requests that are in the batch now."""
        return len(self._running)

    @property
    def n_waiting(self) -> int:
        """Requests whose KV is on its way, or for which the batch has no room."""
        return self._n_waiting

    @property
    def kv_tokens(self) -> int:
        """KV tokens of the running requests."""
        return self._kv_tokens

    @property
    def expected_union(self) -> float:
        """Distinct experts the step in progress is expected to use, mean over layers."""
        return self._step_mean_union if self._step_ends_at_seconds is not None else 0.0

    def counters(self) -> BatchCounters:
        """Return the totals, every complete step counted."""
        return BatchCounters(
            n_steps=self._n_steps,
            batch_sum=self._batch_sum,
            n_tokens=self._n_tokens,
            distinct_experts=self._distinct_experts + self._n_steps_of_union * self._step_union,
        )

    def next_event_seconds(self) -> float | None:
        """Return when :meth:`advance` has something to do; None while nobody is here."""
        if self._step_ends_at_seconds is not None:
            return self._step_ends_at_seconds
        while self._waiting and self._waiting[0][2].is_gone:
            heapq.heappop(self._waiting)
        return max(self._waiting[0][0], self._not_before_seconds) if self._waiting else None

    def submit(self, slot: DecodeSlot) -> None:
        """Take a request; it joins at the first step border once it is ready and there is room."""
        self._n_submitted += 1
        self._n_waiting += 1
        heapq.heappush(self._waiting, (slot.ready_at_seconds, self._n_submitted, slot))

    def remove(self, slot: DecodeSlot) -> None:
        """Free the place of a request that has gone; a no-op for one that is finished."""
        if slot.is_gone:
            return
        slot.is_gone = True
        if slot.admitted_at_step == NOT_ADMITTED:
            self._n_waiting -= 1
            return
        self._running.discard(slot)
        self._union.leave(slot)
        self._is_union_stale = True
        self._kv_tokens -= slot.prompt_tokens + self._n_steps - slot.admitted_at_step

    def advance(self, now_seconds: float) -> None:
        """Do every step that has ended by now, in order."""
        while (at := self.next_event_seconds()) is not None and at <= now_seconds:
            if self._step_ends_at_seconds is not None:
                self._complete_step()
            self._begin_step(at)

    def postpone(self, until_seconds: float, by_seconds: float) -> None:
        """Let the step in progress end later by `by_seconds` and none begin before `until_seconds`."""
        self._not_before_seconds = until_seconds
        if self._step_ends_at_seconds is not None:
            self._step_ends_at_seconds += by_seconds

    def _complete_step(self) -> None:
        self._n_steps += 1
        self._n_steps_of_union += 1
        self._batch_sum += self._step_batch
        self._n_tokens += len(self._running)
        self._kv_tokens += len(self._running)
        for slot in self._due.pop(self._n_steps, ()):
            if not slot.is_gone:
                self._hand_out(slot)

    def _hand_out(self, slot: DecodeSlot) -> None:
        slot.n_tokens = self._n_steps - slot.admitted_at_step
        if slot.n_tokens >= slot.max_tokens:
            self.remove(slot)
        else:
            self._plan_border(slot)
        slot.on_tokens()

    def _begin_step(self, at_seconds: float) -> None:
        while self._waiting and len(self._running) < self._max_running:
            ready_at_seconds, _, slot = self._waiting[0]
            if ready_at_seconds > at_seconds and not slot.is_gone:
                break
            heapq.heappop(self._waiting)
            if not slot.is_gone:
                self._admit(slot)
        if not self._running:
            self._step_ends_at_seconds = None
            return
        if self._is_union_stale:
            self._renew_union()
        self._step_batch = len(self._running)
        step_ms = self._latency.step_ms(self._step_mean_union, self._step_batch, self._kv_tokens)
        self._step_ends_at_seconds = at_seconds + step_ms * self.slow_factor / 1000.0

    def _admit(self, slot: DecodeSlot) -> None:
        self._n_waiting -= 1
        slot.admitted_at_step = self._n_steps
        self._running.add(slot)
        self._union.join(slot, slot.log_unused)
        self._is_union_stale = True
        self._kv_tokens += slot.prompt_tokens
        self._plan_border(slot)

    def _plan_border(self, slot: DecodeSlot) -> None:
        border = next_border(slot.n_tokens, slot.interval_tokens, slot.max_tokens)
        self._due[slot.admitted_at_step + border].append(slot)

    def _renew_union(self) -> None:
        self._distinct_experts += self._n_steps_of_union * self._step_union
        self._n_steps_of_union = 0
        self._step_union = self._union.by_layer()
        self._step_mean_union = float(self._step_union.mean())
        self._is_union_stale = False
