"""A fleet of simulated workers in one process and one event loop, each on a port of its own."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from eldr_runtime.errors import InvalidConfig
from eldr_runtime.routing_config import WorkerEntry, WorkerRole, WorkerState
from eldr_runtime.simulated_fleet.decode_worker import DecodeSettings, DecodeWorker
from eldr_runtime.simulated_fleet.prefill_worker import PrefillWorker
from eldr_runtime.simulated_fleet.profile_pool import ProfilePool

POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSettings:
    """Workers to start with and what they share; worker n listens on `port_base + n`, 0 takes free ports."""

    n_prefill: int
    n_decode: int
    decode: DecodeSettings
    host: str = "127.0.0.1"
    port_base: int = 0
    id_prefix: str = ""

    def __post_init__(self) -> None:
        for field in ("n_prefill", "n_decode"):
            if not 0 <= getattr(self, field) <= 256:
                raise InvalidConfig(field=field, value=getattr(self, field), limit="from 0 to 256")
        if not 0 <= self.port_base <= 65_000:
            raise InvalidConfig(field="port_base", value=self.port_base, limit="from 0 to 65000")


class Membership(Protocol):
    """Tells others that workers come, drain and are there; a null object where nobody wants to know."""

    def join(self, entry: WorkerEntry) -> None:
        """Begin to announce a worker."""

    def vanish(self, worker_id: str) -> None:
        """Announce a worker no more, without a word."""

    async def drain(self, entry: WorkerEntry) -> None:
        """Announce that a worker takes no new requests."""


class NoMembership:
    """Announces nothing."""

    def join(self, entry: WorkerEntry) -> None:
        """Do nothing."""

    def vanish(self, worker_id: str) -> None:
        """Do nothing."""

    async def drain(self, entry: WorkerEntry) -> None:
        """Do nothing."""


OnDecodeFinished = Callable[[str, str, int, int], None]
"""Called with worker id, request id, profile and steps."""
SimulatedWorker = PrefillWorker | DecodeWorker


class Fleet:
    """Starts, adds, kills and drains workers."""

    def __init__(
        self,
        settings: FleetSettings,
        pool: ProfilePool,
        *,
        membership: Membership | None = None,
        on_decode_finished: OnDecodeFinished | None = None,
    ) -> None:
        self._settings = settings
        self._pool = pool
        self._membership: Membership = membership or NoMembership()
        self._on_decode_finished = on_decode_finished or _ignore
        self._workers: dict[str, SimulatedWorker] = {}
        self._states: dict[str, WorkerState] = {}
        self._n_started: dict[WorkerRole, int] = dict.fromkeys(WorkerRole, 0)
        self._on_change: list[Callable[[], None]] = []

    def listen(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` when a worker has come or gone."""
        self._on_change.append(on_change)

    def entries(self) -> tuple[WorkerEntry, ...]:
        """Return the workers that are here."""
        return tuple(self._entry(worker) for worker in self._workers.values())

    def n_in_flight(self) -> int:
        """Return the requests of all workers."""
        return sum(worker.n_in_flight for worker in self._workers.values())

    def worker(self, worker_id: str) -> SimulatedWorker:
        """Return a worker by its id."""
        if worker_id not in self._workers:
            known = ", ".join(self._workers)
            raise InvalidConfig(field="worker_id", value=worker_id, limit=f"one of {known}")
        return self._workers[worker_id]

    async def start(self) -> None:
        """Start the workers of the settings."""
        for _ in range(self._settings.n_prefill):
            await self.add(WorkerRole.PREFILL)
        for _ in range(self._settings.n_decode):
            await self.add(WorkerRole.DECODE)

    async def add(self, role: WorkerRole) -> WorkerEntry:
        """Start one more worker, with a new id and port."""
        worker_id = f"{self._settings.id_prefix}{role.value}-{self._n_started[role]:02d}"
        base = self._settings.port_base
        port = base + sum(self._n_started.values()) if base else 0
        self._n_started[role] += 1
        worker = self._make(role, worker_id)
        await worker.server.start(self._settings.host, port)
        self._workers[worker_id] = worker
        self._states[worker_id] = WorkerState.READY
        entry = self._entry(worker)
        self._membership.join(entry)
        self._changed()
        return entry

    async def kill(self, worker_id: str) -> None:
        """End a worker as a crash would: connections reset, nobody told."""
        worker = self.worker(worker_id)
        del self._workers[worker_id], self._states[worker_id]
        self._membership.vanish(worker_id)
        await worker.server.cut_off()
        self._changed()

    async def drain(self, grace_seconds: float) -> bool:
        """Announce the end of all workers, wait for their requests, close; False if some were cut."""
        for worker_id in self._workers:
            self._states[worker_id] = WorkerState.DRAINING
        await asyncio.gather(*(self._membership.drain(entry) for entry in self.entries()))
        ends_at_seconds = time.monotonic() + grace_seconds
        # looked at now and then: an event would have to live in every queue and batch
        while self.n_in_flight() and time.monotonic() < ends_at_seconds:  # noqa: ASYNC110
            await asyncio.sleep(POLL_SECONDS)
        is_empty = self.n_in_flight() == 0
        await self.close()
        return is_empty

    async def close(self) -> None:
        """Close all workers now."""
        workers = list(self._workers.values())
        self._workers.clear()
        for worker in workers:
            self._membership.vanish(worker.worker_id)
            await worker.server.close()

    def _make(self, role: WorkerRole, worker_id: str) -> SimulatedWorker:
        if role is WorkerRole.PREFILL:
            return PrefillWorker(worker_id=worker_id, model=self._settings.decode.model, pool=self._pool)

        def on_finished(request_id: str, profile: int, n_steps: int) -> None:
            self._on_decode_finished(worker_id, request_id, profile, n_steps)

        return DecodeWorker(
            worker_id=worker_id,
            settings=self._settings.decode,
            pool=self._pool,
            on_finished=on_finished,
            release_kv=self._release_kv,
        )

    def _release_kv(self, engine_id: str, blocks: Sequence[object]) -> None:
        worker = self._workers.get(engine_id)
        if isinstance(worker, PrefillWorker):
            worker.leases.release(blocks)

    def _entry(self, worker: SimulatedWorker) -> WorkerEntry:
        role = WorkerRole.PREFILL if isinstance(worker, PrefillWorker) else WorkerRole.DECODE
        return WorkerEntry(
            id=worker.worker_id,
            role=role,
            url=worker.server.url,
            state=self._states[worker.worker_id],
            capacity=self._settings.decode.max_running,
        )

    def _changed(self) -> None:
        for on_change in self._on_change:
            on_change()


def _ignore(worker_id: str, request_id: str, profile: int, n_steps: int) -> None:
    """Want to know nothing of finished requests."""
