"""One simulated decode worker: all its requests step together, and time is jumped, not stepped through.

Between a join and a leave the batch, and with it the expected union, is constant, so the n-th step from a
boundary lasts `first_step_ms + (n - 1) * growth_ms` (the KV cache grows by one token a request and step), and
n steps have a closed form. Joins wait for the end of the running step. All of it is ours.
"""

import heapq
import math
from dataclasses import dataclass

import numpy as np

from eldr_runtime.array_types import Floats32
from eldr_runtime.latency_model import LatencyModel

# joins and leaves after which the product of a worker's members is taken afresh
RECOMPUTE_EVERY = 256


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RequestLog:
    """What the workers write of each request, NaN until it is known; lists, which cost less by item.

    `batch_sum` and `union_sum` hold the worker's running totals over steps at the join, and from the leave on
    the request's own totals.
    """

    first_token_ms: list[float]
    last_token_ms: list[float]
    batch_sum: list[float]
    union_sum: list[float]

    @classmethod
    def empty(cls, n_requests: int) -> "RequestLog":
        """Make a log in which nothing is known."""
        columns = [[math.nan] * n_requests for _ in range(4)]
        return cls(
            first_token_ms=columns[0],
            last_token_ms=columns[1],
            batch_sum=columns[2],
            union_sum=columns[3],
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RequestTable:
    """What the workers need of each request.

    Attributes
    ----------
    profile_of, prompt_tokens, output_tokens : one a request
    not_used : float32 (n_profiles, n_layers * n_experts), `1 - p`, above 0
    n_layers, n_experts : shape of the model
    """

    profile_of: list[int]
    prompt_tokens: list[int]
    output_tokens: list[int]
    not_used: Floats32
    n_layers: int
    n_experts: int


class DecodeWorker:
    """Members, clock and expected union of one worker.

    `next_ms` is the time of the next boundary at which the batch changes, infinite on an idle worker; whoever
    drives the worker calls `ready` and `reach_boundary` in the order of time.
    """

    __slots__ = (
        "_batch_total",
        "_changes",
        "_first_step_ms",
        "_growth_ms",
        "_kv_tokens",
        "_log",
        "_members",
        "_model",
        "_next_steps",
        "_peak_batch",
        "_q",
        "_segment_ms",
        "_step",
        "_table",
        "_union_total",
        "_waiting",
        "next_ms",
        "union",
    )

    def __init__(self, table: RequestTable, model: LatencyModel, log: RequestLog) -> None:
        self._table, self._model, self._log = table, model, log
        self._q = np.ones(table.not_used.shape[1])  # probability that no member uses the expert
        self._members: list[tuple[int, int]] = []  # heap of (step at which it ends, request)
        self._waiting: list[int] = []
        self._kv_tokens = self._step = self._next_steps = self._changes = self._peak_batch = 0
        self._segment_ms = self._first_step_ms = self._growth_ms = 0.0
        self._batch_total = self._union_total = 0.0
        self.union = 0.0
        self.next_ms = math.inf

    @property
    def batch(self) -> int:
        """Requests that step together now."""
        return len(self._members)

    @property
    def members(self) -> tuple[int, ...]:
        """Requests that step together now, in no order."""
        return tuple(request for _, request in self._members)

    def ready(self, request: int, now_ms: float) -> bool:
        """Take in a request whose KV cache has arrived; tell whether `next_ms` moved."""
        self._waiting.append(request)
        if not self._members:
            is_first = len(self._waiting) == 1
            if is_first:
                self._next_steps, self.next_ms = 0, now_ms
            return is_first
        n_steps = self._steps_until(now_ms)
        if n_steps >= self._next_steps:
            return False
        self._next_steps = n_steps
        self.next_ms = self._segment_ms + self._duration_ms(n_steps)
        return True

    def reach_boundary(self) -> list[int]:
        """Move to `next_ms`: let requests that are done leave and those that wait join; return the done."""
        now_ms = self.next_ms
        self._advance(now_ms)
        done = self._let_leave(now_ms)
        joined = self._let_join()
        if not self._members:
            self.next_ms, self.union = math.inf, 0.0
            self._q[:] = 1.0
            return done
        self._update_union(len(done) + len(joined))
        self._first_step_ms = self._model.step_ms(self.union, self.batch, self._kv_tokens)
        self._growth_ms = self._model.per_kv_token_ms * self.batch
        for request in joined:
            self._log.first_token_ms[request] = now_ms + self._first_step_ms
        self._next_steps = self._members[0][0] - self._step
        self.next_ms = now_ms + self._duration_ms(self._next_steps)
        return done

    def _advance(self, now_ms: float) -> None:
        n_steps, batch = self._next_steps, len(self._members)
        self._step += n_steps
        self._kv_tokens += n_steps * batch
        self._batch_total += n_steps * batch
        self._union_total += n_steps * self.union
        self._segment_ms = now_ms

    def _let_leave(self, now_ms: float) -> list[int]:
        done = []
        log, table = self._log, self._table
        while self._members and self._members[0][0] == self._step:
            request = heapq.heappop(self._members)[1]
            done.append(request)
            self._kv_tokens -= table.prompt_tokens[request] + table.output_tokens[request]
            self._q /= table.not_used[table.profile_of[request]]
            log.last_token_ms[request] = now_ms
            log.batch_sum[request] = self._batch_total - log.batch_sum[request]
            log.union_sum[request] = self._union_total - log.union_sum[request]
        return done

    def _let_join(self) -> list[int]:
        joined, self._waiting = self._waiting, []
        log, table = self._log, self._table
        for request in joined:
            heapq.heappush(self._members, (self._step + table.output_tokens[request], request))
            self._kv_tokens += table.prompt_tokens[request]
            self._q *= table.not_used[table.profile_of[request]]
            log.batch_sum[request] = self._batch_total
            log.union_sum[request] = self._union_total
        return joined

    def _update_union(self, n_changes: int) -> None:
        self._changes += n_changes
        self._peak_batch = max(self._peak_batch, self.batch)
        # a shrunken batch may have left zeros where a large one had underflowed
        if self._changes >= RECOMPUTE_EVERY or 2 * self.batch < self._peak_batch:
            self._changes, self._peak_batch = 0, self.batch
            profiles = [self._table.profile_of[request] for _, request in self._members]
            np.prod(self._table.not_used[profiles], axis=0, dtype=np.float64, out=self._q)
        self.union = self._table.n_experts - float(self._q.sum()) / self._table.n_layers

    def _duration_ms(self, n_steps: int) -> float:
        return n_steps * self._first_step_ms + self._growth_ms * (n_steps * (n_steps - 1) / 2)

    def _steps_until(self, now_ms: float) -> int:
        """Count steps from the last boundary to the first end of a step at or after `now_ms`, at least 1."""
        elapsed_ms = now_ms - self._segment_ms
        linear = self._first_step_ms - self._growth_ms / 2
        root = math.sqrt(linear * linear + 2 * self._growth_ms * max(elapsed_ms, 0.0))
        n_steps = max(1, math.ceil(2 * elapsed_ms / (linear + root)))
        while self._duration_ms(n_steps) < elapsed_ms:
            n_steps += 1
        while n_steps > 1 and self._duration_ms(n_steps - 1) >= elapsed_ms:
            n_steps -= 1
        return n_steps
