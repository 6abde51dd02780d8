"""Keeps workers registered with a control plane: one heartbeat a worker every two seconds."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

import aiohttp

from eldr_runtime.errors import InvalidMessage
from eldr_runtime.heartbeats import HEARTBEAT_SECONDS, SelfTest, TransferMode, WorkerHeartbeat
from eldr_runtime.json_values import from_json_value, parse_json
from eldr_runtime.routing_config import WorkerEntry, WorkerState

TIMEOUT_SECONDS = 5.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseAnswer:
    """What a worker wants to know of the control plane's answer to its heartbeat."""

    heartbeat_seconds: float = HEARTBEAT_SECONDS
    decode_profile_urls: tuple[str, ...] = ()
    decode_profile_share: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlaneAddress:
    """Where to register, as what."""

    url: str
    fleet: str
    api_key: str | None

    @property
    def heartbeat_url(self) -> str:
        """Address of the heartbeats of this fleet's workers."""
        return f"{self.url.rstrip('/')}/v1/fleets/{self.fleet}/workers/heartbeat"

    @property
    def headers(self) -> dict[str, str]:
        """Headers of every request."""
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSoftware:
    """What all workers of one process run; `plugin_version` is the version of what counts their experts."""

    engine: str
    engine_version: str
    plugin_version: str
    model: str
    kv_connector: str


class ControlPlaneMembership:
    """Announces workers that passed their self-test; a control plane that does not answer is asked again."""

    def __init__(
        self,
        address: ControlPlaneAddress,
        session: aiohttp.ClientSession,
        *,
        software: WorkerSoftware,
        on_lease: Callable[[LeaseAnswer], None],
    ) -> None:
        self._address = address
        self._session = session
        self._software = software
        self._on_lease = on_lease
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._is_failing = False

    def join(self, entry: WorkerEntry) -> None:
        """Begin to announce a worker."""
        self._tasks[entry.id] = asyncio.create_task(self._beat_forever(entry))

    def vanish(self, worker_id: str) -> None:
        """Announce a worker no more; its lease runs out."""
        task = self._tasks.pop(worker_id, None)
        if task is not None:
            task.cancel()

    async def drain(self, entry: WorkerEntry) -> None:
        """Announce that a worker is draining, now and as long as it is here."""
        self.vanish(entry.id)
        draining = replace(entry, state=WorkerState.DRAINING)
        await self._beat(draining)
        self.join(draining)

    async def _beat_forever(self, entry: WorkerEntry) -> None:
        while True:
            lease = await self._beat(entry)
            await asyncio.sleep(lease.heartbeat_seconds if lease is not None else HEARTBEAT_SECONDS)

    async def _beat(self, entry: WorkerEntry) -> LeaseAnswer | None:
        """Send one heartbeat; None if nobody took it."""
        try:
            lease = await self._post(self._heartbeat(entry).to_json())
        except (aiohttp.ClientError, TimeoutError, OSError, InvalidMessage) as error:
            self._note_failure(str(error) or type(error).__name__)
            return None
        if self._is_failing:
            self._is_failing = False
            logger.warning("registered with %s again", self._address.url)
        self._on_lease(lease)
        return lease

    async def _post(self, body: str) -> LeaseAnswer:
        headers = {**self._address.headers, "Content-Type": "application/json"}
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        async with self._session.post(
            self._address.heartbeat_url, data=body, headers=headers, timeout=timeout
        ) as response:
            text = await response.text()
            if response.status >= 300:
                raise InvalidMessage(field="status", value=response.status, limit=f"200 ({text[:200]})")
            return from_json_value(LeaseAnswer, parse_json(text))

    def _note_failure(self, reason: str) -> None:
        if not self._is_failing:
            self._is_failing = True
            logger.warning("heartbeats to %s fail: %s", self._address.url, reason)

    def _heartbeat(self, entry: WorkerEntry) -> WorkerHeartbeat:
        return WorkerHeartbeat(
            fleet=self._address.fleet,
            worker_id=entry.id,
            role=entry.role,
            url=entry.url,
            engine=self._software.engine,
            engine_version=self._software.engine_version,
            plugin_version=self._software.plugin_version,
            model=self._software.model,
            kv_connector=self._software.kv_connector,
            transfer_mode=TransferMode.PULL,
            self_test=SelfTest.PASSED,
            state=entry.state,
            capacity=entry.capacity,
        )
