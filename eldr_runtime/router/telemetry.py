"""What the control plane learns of the requests: sampled events, and metrics of all of them by window."""

import asyncio
import secrets
import time
from datetime import UTC, datetime

from eldr_runtime.decode_profile import DecodeProfile
from eldr_runtime.metrics_blob import ActiveExperts, MetricsKey
from eldr_runtime.metrics_recorder import FinishedRequest
from eldr_runtime.router.blob_windows import BlobWindows, WindowKey
from eldr_runtime.router.control_plane_link import ControlPlaneLink, ControlPlaneUnavailable
from eldr_runtime.router.decode_profiles import DecodeProfileJoin
from eldr_runtime.router.exchange import Exchange
from eldr_runtime.router.outbox import Outbox
from eldr_runtime.router.snapshot import RoutingSnapshot
from eldr_runtime.router.worker_scrape import StepCounts
from eldr_runtime.routing_event import Outcome, RoutingEvent, most_similar
from eldr_runtime.sampling import is_sampled
from eldr_runtime.telemetry_batch import TelemetryBatch

_ERRORS = frozenset({Outcome.PREFILL_FAILED, Outcome.DECODE_FAILED, Outcome.TIMED_OUT})
# Room for two thousand million blobs above the first number, in the 32 bits a database gives an integer.
_SEQUENCE_BITS = 30


class Telemetry:
    """Takes what requests and workers tell, and hands it on; nothing in it waits for the control plane."""

    def __init__(
        self, outbox: Outbox, *, router_id: str, profile_wait_seconds: float, max_waiting: int
    ) -> None:
        self.outbox = outbox
        self.profiles = DecodeProfileJoin(
            outbox.add_event, wait_seconds=profile_wait_seconds, max_waiting=max_waiting
        )
        self._windows = BlobWindows(router_id, secrets.randbits(_SEQUENCE_BITS))

    def record(self, exchange: Exchange) -> None:
        """Take a request that ended, however it did."""
        key = WindowKey.at(
            time.time(),
            _window_seconds(exchange.snapshot),
            experiment_window=exchange.window.index,
            is_washout=exchange.window.is_washout,
        )
        self._windows.record(key, _finished(exchange))
        self._sample(exchange)

    def worker_did(self, worker_id: str, steps: StepCounts, snapshot: RoutingSnapshot) -> None:
        """Take what a worker's steps loaded since the last look.

        It counts for the window of this moment. What the worker did before the window began, at most the time
        between two looks, falls into its washout.
        """
        now = time.time()
        window = snapshot.window_at(now)
        key = WindowKey.at(
            now,
            _window_seconds(snapshot),
            experiment_window=window.index,
            is_washout=window.is_washout,
        )
        row_key = MetricsKey(
            worker=worker_id, version=snapshot.arms[window.arm].table.version_hash, arm=window.arm
        )
        experts = ActiveExperts(
            n_steps=steps.n_steps, sum_by_layer=steps.distinct_experts_sum, batch_sum=steps.batch_sum
        )
        self._windows.add_steps(key, row_key, experts)

    def profile_arrived(self, profile: DecodeProfile) -> None:
        """Take a decode profile."""
        self.profiles.arrived(profile)

    async def send(self, link: ControlPlaneLink) -> None:
        """Deliver all that is due; what cannot be delivered stays for the next time.

        Under load there may be an event more whenever a batch is delivered, so windows that end meanwhile are
        taken with each batch: they do not wait for the events to run out.
        """
        self._take_due()
        while (batch := self.outbox.next_batch()) is not None and await self._deliver(batch, link):
            self._take_due()

    async def flush(self, link: ControlPlaneLink) -> None:
        """Deliver everything, windows that are not over included; for the end of the process."""
        self.profiles.give_up()
        self.outbox.add_blobs(self._windows.take(), time.time())
        while (batch := self.outbox.next_batch()) is not None and await self._deliver(batch, link):
            pass

    def _take_due(self) -> None:
        self.profiles.expire()
        now = time.time()
        self.outbox.add_blobs(self._windows.take(now), now)

    async def _deliver(self, batch: TelemetryBatch, link: ControlPlaneLink) -> bool:
        """Hand one batch over; False if the control plane cannot take it now."""
        # Tens of microseconds an event: in a thread it holds up no stream for more than a turn.
        text = await asyncio.to_thread(batch.to_json)
        try:
            await link.telemetry(text)
        except ControlPlaneUnavailable as error:
            if not error.is_final:
                return False
            self.outbox.refused(batch, str(error))
        else:
            self.outbox.delivered(batch)
        return True

    def _sample(self, exchange: Exchange) -> None:
        limits = exchange.snapshot.limits
        sample_id = exchange.attempt_id or exchange.request_id
        has_profile = (
            exchange.outcome is Outcome.COMPLETED
            and exchange.counts is not None
            and is_sampled(sample_id, limits.decode_profile_share)
        )
        has_counts = has_profile or is_sampled(sample_id, limits.signature_sample_share)
        if not has_counts and not is_sampled(sample_id, limits.event_sample_share):
            return
        event = event_of(exchange, has_counts=has_counts)
        if has_profile and exchange.attempt_id is not None:
            self.profiles.wait_for(exchange.attempt_id, event)
        else:
            self.outbox.add_event(event)


def event_of(exchange: Exchange, *, has_counts: bool) -> RoutingEvent:
    """Return the record of one request."""
    decision = exchange.decision
    return RoutingEvent(
        request_id=exchange.request_id,
        at=datetime.fromtimestamp(exchange.arrived_at, UTC),
        arm=exchange.arm.name,
        generation=exchange.snapshot.generation or 0,
        version=exchange.arm.table.version_hash,
        prefill_worker=exchange.prefill_worker,
        decode_worker=None if decision is None else decision.worker_id,
        cluster=None if decision is None else decision.nearest_centroid,
        similarities={} if decision is None else most_similar(exchange.candidates, decision.similarities),
        band=() if decision is None else decision.band,
        in_flight={} if decision is None else dict(zip(exchange.candidates, decision.in_flight, strict=True)),
        reason=None if decision is None else decision.reason,
        ttft_ms=exchange.ttft_ms,
        tpot_ms=exchange.tpot_ms,
        prompt_tokens=exchange.prompt_tokens or 0,
        output_tokens=exchange.completion_tokens or 0,
        outcome=exchange.outcome,
        counts=exchange.counts if has_counts else None,
    )


def _finished(exchange: Exchange) -> FinishedRequest:
    decision = exchange.decision
    return FinishedRequest(
        worker=None if decision is None else decision.worker_id,
        cluster=None if decision is None else decision.nearest_centroid,
        version=exchange.arm.table.version_hash,
        arm=exchange.arm.name,
        is_error=exchange.outcome in _ERRORS,
        output_tokens=exchange.completion_tokens or 0,
        band_size=0 if decision is None else len(decision.band),
        ttft_ms=exchange.ttft_ms,
        tpot_ms=exchange.tpot_ms,
    )


def _window_seconds(snapshot: RoutingSnapshot) -> int:
    return max(1, round(snapshot.limits.metrics_window_seconds))
