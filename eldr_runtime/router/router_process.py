"""One router put together: its parts, what runs beside serving, and its orderly end."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version

import numpy as np

from eldr_runtime.heartbeats import RouterHeartbeat
from eldr_runtime.router.background import Background
from eldr_runtime.router.config_feed import ConfigFeed
from eldr_runtime.router.config_store import ConfigStore
from eldr_runtime.router.control_plane_link import ControlPlaneLink, ControlPlaneUnavailable
from eldr_runtime.router.data_plane import DataPlane
from eldr_runtime.router.doors import Doors
from eldr_runtime.router.exchange import Exchange
from eldr_runtime.router.legs import Legs
from eldr_runtime.router.metrics import RouterMetrics
from eldr_runtime.router.outbox import Outbox
from eldr_runtime.router.reachability import Reachability
from eldr_runtime.router.readiness import Proof
from eldr_runtime.router.settings import RouterSettings
from eldr_runtime.router.snapshot import RoutingSnapshot, read_workers_file
from eldr_runtime.router.telemetry import Telemetry
from eldr_runtime.router.upstream import Upstream, WorkerAddress, open_worker_session
from eldr_runtime.router.worker_scrape import StepCounts, WorkerScrape
from eldr_runtime.serving_engine import ServingEngine
from eldr_runtime.vllm_adapter.wire_format import VllmEngine
from eldr_runtime.worker_load import InFlightCounter

FLUSH_SECONDS = 5.0
_log = logging.getLogger(__name__)


class RouterProcess:
    """The composition root of a router; made inside the event loop, by `run_router_process`."""

    def __init__(self, settings: RouterSettings, engine: ServingEngine, url: str | None) -> None:
        self.settings = settings
        self.engine = engine
        self.metrics = RouterMetrics()
        self.prefill_load = InFlightCounter()
        self.decode_load = InFlightCounter()
        self.reachability = Reachability(settings.pace.unreachable_seconds)
        self.session = open_worker_session(settings.timeouts)
        self.link = _link(settings)
        self.outbox = Outbox(
            router_id=settings.router_id,
            max_events=settings.bounds.max_queued_events,
            keep_seconds=settings.pace.telemetry_keep_seconds,
            on_dropped=self.metrics.dropped,
        )
        self.telemetry = Telemetry(
            self.outbox,
            router_id=settings.router_id,
            profile_wait_seconds=settings.pace.decode_profile_wait_seconds,
            max_waiting=settings.bounds.max_queued_events,
        )
        self.config = ConfigFeed(
            fleet=settings.fleet,
            store=ConfigStore(settings.data_dir),
            link=self.link,
            workers=None if settings.workers_file is None else read_workers_file(settings.workers_file),
            on_applied=self._applied,
        )
        self.upstream = Upstream(self.session, settings.timeouts)
        self.scrape = WorkerScrape(
            session=self.session,
            engine=engine,
            workers=self._decode_workers,
            on_steps=self._worker_did,
            limit_seconds=settings.pace.scrape_seconds,
        )
        self.plane = self._build_plane()
        self._url = url
        self._generation_changed = asyncio.Event()

    async def beat(self) -> None:
        """Tell the control plane what runs here; it will see it itself if it does not hear us."""
        if self.link is None:
            return
        beat = RouterHeartbeat(
            router_id=self.settings.router_id,
            generation_applied=self.config.generation or 0,
            config_source=self.config.source,
            in_flight=self.decode_load.by_worker(),
            dropped_events=self.outbox.n_dropped_events,
            versions={"eldr": version("eldr")},
            url=self._url,
        )
        with suppress(ControlPlaneUnavailable):
            await self.link.heartbeat(beat.to_json())

    def start(self, background: Background) -> None:
        """Start what runs beside serving."""
        pace = self.settings.pace
        if self.link is not None:
            background.repeat(self.config.poll, pace.config_poll_seconds)
            background.repeat(self.beat, pace.heartbeat_seconds, wake=self._generation_changed)
            background.repeat(self._send_telemetry, pace.telemetry_seconds)
            background.repeat(self.scrape.once, pace.scrape_seconds)

    async def close(self) -> None:
        """Deliver what telemetry is left, within a few seconds, and close all connections."""
        self.plane.doors.close()
        if self.link is not None:
            try:
                async with asyncio.timeout(FLUSH_SECONDS):
                    await self.telemetry.flush(self.link)
                    await self.beat()
            except TimeoutError:
                _log.warning("telemetry could not be delivered: %d are lost", self.outbox.n_waiting)
            await self.link.close()
        await self.session.close()

    def _build_plane(self) -> DataPlane:
        self.metrics.show_in_flight(
            {"prefill": self.prefill_load.by_worker, "decode": self.decode_load.by_worker}
        )
        legs = Legs(
            engine=self.engine,
            upstream=self.upstream,
            timeouts=self.settings.timeouts,
            minimum_coverage_share=self.settings.pace.minimum_coverage_share,
            reachability=self.reachability,
            prefill_load=self.prefill_load,
            decode_load=self.decode_load,
            metrics=self.metrics,
            rng=np.random.default_rng(),
        )
        return DataPlane(
            legs=legs,
            config=self.config,
            doors=Doors(self.settings.bounds.max_in_flight),
            metrics=self.metrics,
            proof=Proof(),
            record=_forget if self.link is None else self.telemetry.record,
            max_body_bytes=self.settings.bounds.max_body_bytes,
        )

    def _applied(self, snapshot: RoutingSnapshot) -> None:
        if snapshot.generation is not None:
            self.metrics.applied(snapshot.generation)
        self.reachability.keep(snapshot.known_workers)
        for load in (self.prefill_load, self.decode_load):
            for worker_id in load.by_worker():
                if worker_id not in snapshot.known_workers:
                    load.leave(worker_id)
        self._generation_changed.set()

    def _decode_workers(self) -> dict[str, WorkerAddress]:
        return {} if self.config.snapshot is None else dict(self.config.snapshot.decode)

    def _worker_did(self, worker_id: str, steps: StepCounts) -> None:
        if self.config.snapshot is not None:
            self.telemetry.worker_did(worker_id, steps, self.config.snapshot)

    async def _send_telemetry(self) -> None:
        if self.link is not None:
            await self.telemetry.send(self.link)


@asynccontextmanager
async def run_router_process(settings: RouterSettings, url: str | None) -> AsyncIterator[RouterProcess]:
    """Build a router, give it its first configuration, and keep it going while the block runs."""
    process = RouterProcess(settings, VllmEngine(), url)
    background = Background()
    try:
        await process.config.start()
        process.start(background)
        yield process
    finally:
        await background.stop()
        await process.close()


def _link(settings: RouterSettings) -> ControlPlaneLink | None:
    if settings.control_plane_url is None:
        return None
    return ControlPlaneLink(
        url=settings.control_plane_url,
        fleet=settings.fleet,
        api_key=settings.api_key,
        limit_seconds=settings.pace.control_plane_timeout_seconds,
    )


def _forget(exchange: Exchange) -> None:
    """Keep no telemetry where nobody will ever take it."""
