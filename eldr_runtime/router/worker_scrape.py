"""What the decode workers did since the last look: steps, batch, distinct experts, from their pages."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import aiohttp

from eldr_runtime.router.upstream import WorkerAddress
from eldr_runtime.serving_engine import EngineMetrics, ServingEngine


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCounts:
    """Decode steps of one worker, the sum of their batch sizes, and of their distinct experts by layer."""

    n_steps: int
    batch_sum: float
    distinct_experts_sum: tuple[float, ...]


class StepCounters:
    """Turns counters that only grow into what happened since the last reading.

    A worker's first reading, and one that went down (the worker restarted), is a beginning and says nothing.

    Examples
    --------
    >>> counters = StepCounters()
    >>> def reading(steps):
    ...     return EngineMetrics(n_steps=steps, batch_sum=2 * steps, distinct_experts_sum=(8 * steps,))
    >>> counters.since_last("decode-0", reading(10.0)) is None
    True
    >>> counters.since_last("decode-0", reading(13.0))
    StepCounts(n_steps=3, batch_sum=6.0, distinct_experts_sum=(24.0,))
    """

    def __init__(self) -> None:
        self._last: dict[str, StepCounts] = {}

    def since_last(self, worker_id: str, metrics: EngineMetrics) -> StepCounts | None:
        """Return what the worker did since its last reading; None where that is not known, or nothing."""
        if metrics.n_steps is None or metrics.batch_sum is None or metrics.distinct_experts_sum is None:
            self._last.pop(worker_id, None)
            return None
        now = StepCounts(
            n_steps=int(metrics.n_steps),
            batch_sum=metrics.batch_sum,
            distinct_experts_sum=metrics.distinct_experts_sum,
        )
        last = self._last.get(worker_id)
        self._last[worker_id] = now
        if last is None or len(last.distinct_experts_sum) != len(now.distinct_experts_sum):
            return None
        grown = StepCounts(
            n_steps=now.n_steps - last.n_steps,
            batch_sum=now.batch_sum - last.batch_sum,
            distinct_experts_sum=tuple(
                after - before
                for after, before in zip(now.distinct_experts_sum, last.distinct_experts_sum, strict=True)
            ),
        )
        if grown.n_steps <= 0 or grown.batch_sum < 0 or min(grown.distinct_experts_sum) < 0:
            return None
        return grown

    def keep(self, worker_ids: Iterable[str]) -> None:
        """Forget all other workers."""
        kept = set(worker_ids)
        self._last = {worker_id: last for worker_id, last in self._last.items() if worker_id in kept}


class WorkerScrape:
    """Reads the pages of all decode workers, one after another's failure notwithstanding."""

    def __init__(
        self,
        *,
        session: aiohttp.ClientSession,
        engine: ServingEngine,
        workers: Callable[[], Mapping[str, WorkerAddress]],
        on_steps: Callable[[str, StepCounts], None],
        limit_seconds: float,
    ) -> None:
        self._session = session
        self._engine = engine
        self._workers = workers
        self._on_steps = on_steps
        self._limits = aiohttp.ClientTimeout(total=limit_seconds)
        self._counters = StepCounters()
        self.latest: dict[str, EngineMetrics] = {}
        """Last reading of each worker that answered in the last round; who did not is not in it."""

    async def once(self) -> None:
        """Read every page once."""
        workers = self._workers()
        self._counters.keep(workers)
        readings = await asyncio.gather(*(self._read(worker) for worker in workers.values()))
        self.latest = {
            worker_id: reading
            for worker_id, reading in zip(workers, readings, strict=True)
            if reading is not None
        }
        for worker_id, reading in self.latest.items():
            steps = self._counters.since_last(worker_id, reading)
            if steps is not None:
                self._on_steps(worker_id, steps)

    async def _read(self, worker: WorkerAddress) -> EngineMetrics | None:
        try:
            async with self._session.get(f"{worker.url}/metrics", timeout=self._limits) as response:
                if response.status != 200:
                    return None
                page = await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError):
            return None
        return self._engine.read_metrics(page.decode(errors="replace"))
