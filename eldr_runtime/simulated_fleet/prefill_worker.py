"""A simulated prefill worker: takes the time of a prompt, answers with the hand-off and the counts."""

import time

from aiohttp import web

from eldr_runtime.count_codec import ExpertCounts, encode_counts
from eldr_runtime.simulated_fleet.faults import FaultKind, FaultSwitch
from eldr_runtime.simulated_fleet.generation_request import GenerationRequest
from eldr_runtime.simulated_fleet.kv_leases import KvLeases
from eldr_runtime.simulated_fleet.prefill_queue import PrefillQueue, prefill_ms
from eldr_runtime.simulated_fleet.prefix_cache import BLOCK_TOKENS, PrefixCache
from eldr_runtime.simulated_fleet.profile_pool import ProfilePool
from eldr_runtime.simulated_fleet.vllm_answers import AnswerWriter
from eldr_runtime.simulated_fleet.worker_metrics import (
    EngineLoad,
    engine_metrics,
    prefix_cache_metrics,
    render_metrics,
)
from eldr_runtime.simulated_fleet.worker_server import (
    WorkerServer,
    build_worker_application,
    error_response,
    request_id_of,
)

KV_CAPACITY_TOKENS = 1_000_000
MAX_ENCODED = 2048


class PrefillWorker:
    """One prefill worker and its server."""

    def __init__(self, *, worker_id: str, model: str, pool: ProfilePool) -> None:
        self.worker_id = worker_id
        self.leases = KvLeases(time.monotonic)
        self.faults = FaultSwitch()
        self._model = model
        self._pool = pool
        self._queue = PrefillQueue()
        self._cache = PrefixCache(capacity_blocks=KV_CAPACITY_TOKENS // BLOCK_TOKENS)
        self._encoded: dict[tuple[int, int], dict[str, object]] = {}
        self._prompt_tokens = 0
        self._cached_tokens = 0
        self._n_finished = 0
        self.server = WorkerServer(
            build_worker_application(
                model=model, faults=self.faults, generate=self._generate, metrics=self._metrics
            )
        )

    @property
    def n_in_flight(self) -> int:
        """Prompts here, waiting ones too."""
        return self._queue.n_running + self._queue.n_waiting

    async def _generate(self, http: web.Request, request: GenerationRequest) -> web.StreamResponse:
        if refusal := _refusal(request):
            return refusal
        profile = self._pool.find(request)
        n_cached = 0

        def duration_ms() -> float:
            nonlocal n_cached
            n_cached = self._cache.cached_tokens(request.tokens)
            return prefill_ms(request.prompt_tokens - n_cached) * self.faults.slow_factor

        await self._queue.run(duration_ms)
        await self.faults.wait_until_running()
        self._cache.insert(request.tokens)
        self._prompt_tokens += request.prompt_tokens
        self._cached_tokens += n_cached
        self._n_finished += 1
        answer_id = f"{'chatcmpl' if request.is_chat else 'cmpl'}-{request_id_of(http)}"
        writer = AnswerWriter(
            request=request, answer_id=answer_id, model=self._model, created_unix_seconds=int(time.time())
        )
        hand_off = self._hand_off(request.prompt_tokens)
        if self.faults.fault.kind is not FaultKind.NO_COUNTS:
            hand_off["eldr"] = self._counts_message(profile, request.prompt_tokens, n_cached)
        return web.json_response(writer.body(1, {"kv_transfer_params": hand_off}))

    def _hand_off(self, prompt_tokens: int) -> dict[str, object]:
        return {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_engine_id": self.worker_id,
            "remote_block_ids": self.leases.grant(-(-prompt_tokens // BLOCK_TOKENS)),
            "remote_host": self.server.host,
            "remote_port": self.server.port,
        }

    def _counts_message(self, profile: int, prompt_tokens: int, n_cached: int) -> dict[str, object]:
        key = (profile, prompt_tokens)
        if key not in self._encoded:
            if len(self._encoded) >= MAX_ENCODED:
                self._encoded.clear()
            counts = ExpertCounts(
                shape=self._pool.shape,
                counts=self._pool.prompt_counts(profile, prompt_tokens),
                tokens=prompt_tokens,
                covered=prompt_tokens,
                cached=0,
            )
            self._encoded[key] = dict(encode_counts(counts))
        return {**self._encoded[key], "cached": n_cached}

    def _metrics(self) -> str:
        load = EngineLoad(
            n_running=self._queue.n_running,
            n_waiting=self._queue.n_waiting,
            prompt_tokens=self._prompt_tokens,
            generation_tokens=self._n_finished,
            kv_cache_usage_share=0.0,
            n_finished=self._n_finished,
        )
        cache = prefix_cache_metrics(
            self._prompt_tokens, self._cached_tokens, self.leases.n_held(), self._model
        )
        return render_metrics([*engine_metrics(load, self._model), *cache])


def _refusal(request: GenerationRequest) -> web.Response | None:
    params = request.kv_transfer_params or {}
    if params.get("do_remote_decode") is not True:
        message = "a simulated prefill worker needs kv_transfer_params.do_remote_decode true"
        return error_response(400, message, "kv_transfer_params")
    if request.max_tokens != 1 or request.is_streamed:
        message = "a prefill for another worker is one token, not streamed: max_tokens 1, stream false"
        return error_response(400, message, "max_tokens")
    return None
