"""The two calls that serve a request: prefill, and the decode whose answer the client gets."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from eldr_runtime.errors import InvalidMessage
from eldr_runtime.router.attempts import new_attempt_id
from eldr_runtime.router.client_connection import ClientConnection
from eldr_runtime.router.deadline import Timeouts, decode_deadline
from eldr_runtime.router.decode_choice import Unsigned, sign
from eldr_runtime.router.errors import (
    NoWorker,
    RouterError,
    StreamBroken,
    UpstreamFailed,
    UpstreamRefused,
    UpstreamTimeout,
)
from eldr_runtime.router.exchange import Exchange
from eldr_runtime.router.metrics import RouterMetrics
from eldr_runtime.router.prefill_choice import choose_prefill, prompt_prefix
from eldr_runtime.router.reachability import Reachability
from eldr_runtime.router.relay import relay_answer, relay_stream
from eldr_runtime.router.upstream import Upstream
from eldr_runtime.serving_engine import JsonObject, ServingEngine
from eldr_runtime.worker_choice import Decision, choose_worker
from eldr_runtime.worker_load import InFlightCounter


@dataclass(frozen=True, kw_only=True)
class Legs:
    """Serves requests; all its parts are shared between them.

    Parameters
    ----------
    prefill_load, decode_load
        In-flight counts by worker; they outlive every change of the configuration.
    rng
        Settles ties between decode workers.
    """

    engine: ServingEngine
    upstream: Upstream
    timeouts: Timeouts
    minimum_coverage_share: float
    reachability: Reachability
    prefill_load: InFlightCounter
    decode_load: InFlightCounter
    metrics: RouterMetrics
    rng: np.random.Generator

    def require_workers(self, exchange: Exchange) -> None:
        """Raise NoWorker unless both legs have somebody to go to; prefill would be wasted without decode."""
        self._candidates(exchange, exchange.snapshot.prefill, "prefill")
        self._candidates(exchange, exchange.snapshot.decode, "decode")

    async def prefill(self, exchange: Exchange) -> JsonObject | None:
        """Run the prefill leg, once more on another worker if one fails, and return the hand-off.

        A client that leaves does not stop it: an answer lost half-way strands its KV until the lease ends.
        """
        try:
            return await self._prefill_once(exchange)
        except UpstreamFailed as error:
            if not self._may_retry(exchange, exchange.snapshot.prefill, error):
                raise
            self.metrics.retried("prefill")
            return await self._prefill_once(exchange)

    async def decode(self, exchange: Exchange, hand_off: JsonObject | None, client: ClientConnection) -> None:
        """Choose a decode worker and stream its answer to the client, counted as in flight all the while.

        What only this leg checks, such as `max_tokens`, may be refused here: nobody fetches the KV then.
        """
        try:
            await self._decode(exchange, hand_off, client)
        except UpstreamRefused:
            await self.release(exchange, hand_off)
            raise

    def may_retry_decode(self, exchange: Exchange, error: UpstreamFailed) -> bool:
        """Return whether another decode worker may be asked after this failure."""
        return self._may_retry(exchange, exchange.snapshot.decode, error)

    async def release(self, exchange: Exchange, hand_off: JsonObject | None) -> None:
        """Make the prefill worker let go of KV nobody will fetch; best effort, counted."""
        if hand_off is None:
            return
        call = exchange.call
        try:
            candidates = self._candidates(exchange, exchange.snapshot.decode, "decode")
            pool = self.decode_load.view(candidates)
            worker_id = candidates[int(pool.in_flight.argmin())]
            with self.decode_load.acquire(worker_id):
                await self.upstream.call(
                    exchange.snapshot.decode[worker_id],
                    call.path,
                    self.engine.release_request(call.body, hand_off),
                    _headers(exchange, new_attempt_id(exchange.request_id)),
                )
        except RouterError:
            self.metrics.released(succeeded=False)
        else:
            self.metrics.released(succeeded=True)

    async def _decode(
        self, exchange: Exchange, hand_off: JsonObject | None, client: ClientConnection
    ) -> None:
        candidates = self._candidates(exchange, exchange.snapshot.decode, "decode")
        exchange.candidates = candidates
        exchange.decision = self._decide(exchange, candidates)
        worker_id = exchange.decision.worker_id
        with self.decode_load.acquire(worker_id):
            try:
                with self._noted(exchange, worker_id):
                    await self._relay(exchange, hand_off, client, worker_id)
            except UpstreamFailed as error:
                # The answer was whole and only its connection ended badly: nothing of it is missing.
                if not client.is_complete:
                    if client.has_begun:
                        raise StreamBroken(error.message) from error
                    raise

    async def _prefill_once(self, exchange: Exchange) -> JsonObject | None:
        snapshot, call = exchange.snapshot, exchange.call
        pool = self.prefill_load.view(self._candidates(exchange, snapshot.prefill, "prefill"))
        worker_id = choose_prefill(snapshot.ring, prompt_prefix(call.body), pool)
        exchange.prefill_worker = worker_id
        with self.prefill_load.acquire(worker_id), self._noted(exchange, worker_id):
            answer = await self.upstream.call(
                snapshot.prefill[worker_id],
                call.path,
                self.engine.prefill_request(call.body),
                _headers(exchange, new_attempt_id(exchange.request_id)),
            )
        hand_off = self.engine.read_hand_off(answer)
        self._take_counts(exchange, answer, has_hand_off=hand_off is not None)
        return hand_off

    def _take_counts(self, exchange: Exchange, answer: JsonObject, *, has_hand_off: bool) -> None:
        exchange.unsigned = None if has_hand_off else Unsigned.NO_HAND_OFF
        try:
            exchange.counts = self.engine.read_counts(answer)
        except InvalidMessage:
            exchange.counts = None
            exchange.unsigned = Unsigned.INVALID_COUNTS

    def _decide(self, exchange: Exchange, candidates: tuple[str, ...]) -> Decision:
        signature = None
        if exchange.unsigned is None:
            signed = sign(exchange.counts, exchange.arm, exchange.snapshot, self.minimum_coverage_share)
            if isinstance(signed, Unsigned):
                exchange.unsigned = signed
                if signed is Unsigned.INVALID_COUNTS:
                    exchange.counts = None  # nobody else shall stumble over them
            else:
                signature = signed
        return choose_worker(signature, self.decode_load.view(candidates), exchange.arm.table, self.rng)

    async def _relay(
        self, exchange: Exchange, hand_off: JsonObject | None, client: ClientConnection, worker_id: str
    ) -> None:
        call = exchange.call
        worker = exchange.snapshot.decode[worker_id]
        exchange.attempt_id = attempt_id = new_attempt_id(exchange.request_id)
        body = self.engine.decode_request(call.body, hand_off)
        headers = _headers(exchange, attempt_id)
        async with (
            decode_deadline(self.timeouts, client, worker_id) as deadline,
            self.upstream.open(worker, call.path, body, headers) as response,
        ):
            if call.is_stream:
                await relay_stream(response, exchange, client, deadline, worker_id)
            else:
                await relay_answer(response, exchange, client, worker_id, self._completion(exchange))

    def _completion(self, exchange: Exchange) -> Callable[[JsonObject], JsonObject] | None:
        """Return what puts the prompt's counts into the answer of a client that asked for them."""
        counts = exchange.counts
        if counts is None or not self.engine.wants_counts(exchange.call.body):
            return None
        return lambda answer: self.engine.put_counts(answer, counts)

    def _candidates(self, exchange: Exchange, workers: Iterable[str], role: str) -> tuple[str, ...]:
        ready = tuple(workers)
        if not ready:
            raise NoWorker(f"no {role} worker is ready")
        candidates = self.reachability.reachable(ready)
        if exchange.failed_workers:
            candidates = tuple([each for each in candidates if each not in exchange.failed_workers])
        if not candidates:
            raise NoWorker(f"none of the {len(ready)} {role} workers can be reached")
        return candidates

    def _may_retry(self, exchange: Exchange, workers: Iterable[str], error: UpstreamFailed) -> bool:
        """Only what failed at once is worth a second try, and only where there is somebody else."""
        if isinstance(error, UpstreamTimeout) and not error.is_untouched:
            return False
        others = self.reachability.reachable(each for each in workers if each not in exchange.failed_workers)
        return bool(others)

    @contextmanager
    def _noted(self, exchange: Exchange, worker_id: str) -> Iterator[None]:
        """Let the breaker know how a worker did; a 4xx or a client that left says nothing about it."""
        try:
            yield
        except UpstreamFailed as error:
            exchange.failed_workers.add(worker_id)
            self.reachability.failed(worker_id, is_unreachable=error.is_untouched)
            raise
        self.reachability.succeeded(worker_id)


def _headers(exchange: Exchange, attempt_id: str) -> Mapping[str, str]:
    return {**exchange.call.headers, "X-Request-Id": attempt_id}
