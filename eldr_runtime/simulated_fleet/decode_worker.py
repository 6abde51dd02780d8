"""A simulated decode worker: takes hand-offs, joins requests to its batch, streams at the batch's pace."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from aiohttp import web

from eldr_runtime.json_values import to_json_value
from eldr_runtime.latency_model import LatencyPreset
from eldr_runtime.simulated_fleet.batch_clock import BatchClock
from eldr_runtime.simulated_fleet.decode_batch import (
    BatchCounters,
    DecodeBatch,
    DecodeSlot,
    next_border,
)
from eldr_runtime.simulated_fleet.decode_profiles import draw_decode_counts
from eldr_runtime.simulated_fleet.faults import FaultSwitch
from eldr_runtime.simulated_fleet.generation_request import GenerationRequest
from eldr_runtime.simulated_fleet.profile_pool import ProfilePool
from eldr_runtime.simulated_fleet.vllm_answers import DONE_EVENT, AnswerWriter, words_of
from eldr_runtime.simulated_fleet.worker_metrics import (
    EngineLoad,
    decode_metrics,
    engine_metrics,
    render_metrics,
)
from eldr_runtime.simulated_fleet.worker_server import (
    WorkerServer,
    build_worker_application,
    error_response,
    request_id_of,
)
from eldr_runtime.vllm_adapter.wire_format import DECODE_COUNTS_FIELD

KV_CAPACITY_TOKENS = 1_000_000
KV_TRANSFER_BASE_SECONDS = 0.006
KV_TRANSFER_BYTES_PER_SECOND = 40e9
FLUSH_SECONDS = 0.005  # a reset throws away what the loop has not yet handed to the kernel
HAND_OFF_FIELDS = ("remote_engine_id", "remote_block_ids", "remote_host", "remote_port")

OnFinished = Callable[[str, int, int], None]
"""Called with request id, profile and steps of a request that ran to its end."""
ReleaseKv = Callable[[str, Sequence[object]], None]
"""Called with engine and blocks once their KV is pulled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeSettings:
    """What all decode workers of a fleet share."""

    model: str
    preset: LatencyPreset
    stream_interval_tokens: int
    max_running: int


class DecodeWorker:
    """One decode worker and its server."""

    def __init__(
        self,
        *,
        worker_id: str,
        settings: DecodeSettings,
        pool: ProfilePool,
        on_finished: OnFinished,
        release_kv: ReleaseKv,
    ) -> None:
        self.worker_id = worker_id
        self.faults = FaultSwitch()
        self._settings = settings
        self._pool = pool
        self._on_finished = on_finished
        self._release_kv = release_kv
        self._batch = DecodeBatch(
            n_layers=pool.shape.n_layers,
            n_experts=pool.shape.n_experts,
            latency=settings.preset.model,
            max_running=settings.max_running,
        )
        self._clock = BatchClock(self._batch)
        self._prompt_tokens = 0
        self._n_finished = 0
        self.faults.listen(self._follow_fault)
        self.server = WorkerServer(
            build_worker_application(
                model=settings.model, faults=self.faults, generate=self._generate, metrics=self._metrics
            )
        )

    @property
    def n_in_flight(self) -> int:
        """Requests here, waiting ones too."""
        return self._batch.n_running + self._batch.n_waiting

    def counters(self) -> BatchCounters:
        """Return the totals of the batch since the start."""
        return self._batch.counters()

    async def _generate(self, http: web.Request, request: GenerationRequest) -> web.StreamResponse:
        params = request.kv_transfer_params or {}
        if refusal := _refusal(params):
            return refusal
        profile = self._pool.find(request)
        request_id = request_id_of(http)
        has_tokens = asyncio.Event()
        slot = self._slot(request, profile, has_tokens.set)
        writer = AnswerWriter(
            request=request,
            answer_id=f"{'chatcmpl' if request.is_chat else 'cmpl'}-{request_id}",
            model=self._settings.model,
            created_unix_seconds=int(time.time()),
        )
        self._prompt_tokens += request.prompt_tokens
        self._batch.submit(slot)
        self._clock.arm()
        try:
            self._pull_kv(params)
            if request.is_streamed:
                response = await self._stream(http, writer, slot, has_tokens)
            else:
                await self._wait_until_whole(http, slot, has_tokens)
                counts = self._counts_wanted(params, profile, request_id, slot.n_tokens)
                response = web.json_response(writer.body(slot.n_tokens, {"kv_transfer_params": counts}))
        finally:
            self._batch.remove(slot)
        self._n_finished += 1
        self._on_finished(request_id, profile, slot.n_tokens)
        return response

    def _slot(self, request: GenerationRequest, profile: int, on_tokens: Callable[[], None]) -> DecodeSlot:
        kv_bytes = request.prompt_tokens * self._settings.preset.kv_bytes_per_token
        transfer_seconds = KV_TRANSFER_BASE_SECONDS + kv_bytes / KV_TRANSFER_BYTES_PER_SECOND
        is_streamed = request.is_streamed
        return DecodeSlot(
            ready_at_seconds=time.monotonic() + transfer_seconds,
            log_unused=self._pool.log_unused(profile),
            prompt_tokens=request.prompt_tokens,
            max_tokens=request.max_tokens,
            interval_tokens=self._settings.stream_interval_tokens if is_streamed else request.max_tokens,
            on_tokens=on_tokens,
        )

    def _pull_kv(self, params: Mapping[str, object]) -> None:
        engine, blocks = params["remote_engine_id"], params["remote_block_ids"]
        if isinstance(engine, str) and isinstance(blocks, list):
            self._release_kv(engine, blocks)

    async def _stream(
        self, http: web.Request, writer: AnswerWriter, slot: DecodeSlot, has_tokens: asyncio.Event
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(http)
        before, after, after_last = writer.chunk_ends()
        parts = [writer.role_event()] if writer.request.is_chat else []
        n_sent = n_chunks = 0
        while n_sent < slot.max_tokens:
            await has_tokens.wait()
            has_tokens.clear()
            while n_sent < slot.n_tokens:
                if n_chunks == self.faults.cuts_after_chunks:
                    await _cut(http, response, b"".join(parts))
                border = next_border(n_sent, slot.interval_tokens, slot.max_tokens)
                text = words_of(n_sent, border - n_sent).encode()
                parts += (before, text, after_last if border == slot.max_tokens else after)
                n_sent = border
                n_chunks += 1
            await response.write(b"".join(parts))
            parts = []
        usage = writer.usage_event(n_sent) if writer.request.includes_usage else b""
        await response.write_eof(usage + DONE_EVENT)
        return response

    async def _wait_until_whole(self, http: web.Request, slot: DecodeSlot, has_tokens: asyncio.Event) -> None:
        while slot.n_tokens < slot.max_tokens:
            await has_tokens.wait()
            has_tokens.clear()
        if self.faults.cuts_after_chunks is not None:
            await _cut(http, None, b"")

    def _counts_wanted(
        self, params: Mapping[str, object], profile: int, request_id: str, n_steps: int
    ) -> dict[str, object] | None:
        """Return the decode counts of a request that asks for them, those of its pushed profile."""
        if params.get(DECODE_COUNTS_FIELD) is not True:
            return None
        counts = draw_decode_counts(self._pool, profile, n_steps, seed_text=request_id)
        return {DECODE_COUNTS_FIELD: to_json_value(counts)}

    def _follow_fault(self) -> None:
        self._batch.slow_factor = self.faults.slow_factor
        if self.faults.is_stopped:
            self._clock.halt()
        else:
            self._clock.resume()

    def _metrics(self) -> str:
        counters = self._batch.counters()
        load = EngineLoad(
            n_running=self._batch.n_running,
            n_waiting=self._batch.n_waiting,
            prompt_tokens=self._prompt_tokens,
            generation_tokens=counters.n_tokens,
            kv_cache_usage_share=self._batch.kv_tokens / KV_CAPACITY_TOKENS,
            n_finished=self._n_finished,
        )
        families = engine_metrics(load, self._settings.model)
        families += decode_metrics(counters, self._batch.expected_union, self._clock.late_seconds)
        return render_metrics(families)


def _refusal(params: Mapping[str, object]) -> web.Response | None:
    if params.get("do_remote_prefill") is not True:
        message = "a simulated decode worker needs kv_transfer_params.do_remote_prefill true; it has no KV"
        return error_response(400, message, "kv_transfer_params")
    for field in HAND_OFF_FIELDS:
        if params.get(field) is None:
            message = f"kv_transfer_params.{field} is missing"
            return error_response(400, message, f"kv_transfer_params.{field}")
    return None


async def _cut(http: web.Request, response: web.StreamResponse | None, pending: bytes) -> None:
    """Send what is due and reset the connection; the server cancels the handler when it notices."""
    if response is not None and pending:
        await response.write(pending)
        await asyncio.sleep(FLUSH_SECONDS)
    if http.transport is not None:
        http.transport.abort()
    await asyncio.Event().wait()
