"""A prefill and a decode worker that speak vLLM's wire format over HTTP, and do wrong on demand."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Json = dict[str, Any]


@dataclass
class Received:
    """One generating request as a worker saw it."""

    path: str
    body: Json
    headers: Mapping[str, str]

    @property
    def request_id(self) -> str:
        return self.headers["X-Request-Id"]


@dataclass
class KvStore:
    """KV that prefill workers hold for somebody to fetch."""

    held: set[str] = field(default_factory=set)


class FakeWorker:
    """What both roles share: a server on loopback, a log of requests, and the simple faults.

    Attributes
    ----------
    status
        Status of every answer.
    hold
        Event that an answer waits for before it begins; None to answer at once.
    """

    role = ""

    def __init__(self, worker_id: str, kv: KvStore) -> None:
        self.worker_id = worker_id
        self.kv = kv
        self.received: list[Received] = []
        self.status = 200
        self.hold: asyncio.Event | None = None
        self.metrics = ""
        self.n_open = 0
        self.url = ""
        self._runner: web.AppRunner | None = None

    async def start(self, port: int = 0) -> None:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/v1/completions", self._receive)
        app.router.add_post("/v1/chat/completions", self._receive)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/metrics", self._metrics_page)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def to_json(self) -> Json:
        return {"id": self.worker_id, "role": self.role, "url": self.url, "state": "ready", "capacity": 64}

    async def _receive(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        self.received.append(Received(request.path, body, request.headers.copy()))
        self.n_open += 1
        try:
            if self.hold is not None:
                await self.hold.wait()
            if self.status != 200:
                error = {"message": f"{self.worker_id} says {self.status}", "type": "x", "code": self.status}
                return web.json_response({"error": error}, status=self.status)
            return await self.answer(request, body)
        finally:
            self.n_open -= 1

    async def answer(self, request: web.Request, body: Json) -> web.StreamResponse:
        raise NotImplementedError

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "tiny", "object": "model"}]})

    async def _metrics_page(self, request: web.Request) -> web.Response:
        return web.Response(text=self.metrics)


class FakePrefillWorker(FakeWorker):
    """Answers with transfer parameters, and counts if it has any.

    Attributes
    ----------
    counts
        What stands in `kv_transfer_params.eldr`; None to leave it out.
    hands_off
        Whether the answer has `kv_transfer_params` at all.
    """

    role = "prefill"

    def __init__(self, worker_id: str, kv: KvStore) -> None:
        super().__init__(worker_id, kv)
        self.counts: object = None
        self.hands_off = True
        self.garbage: bytes | None = None

    async def answer(self, request: web.Request, body: Json) -> web.StreamResponse:
        if self.garbage is not None:
            return web.Response(body=self.garbage)
        answer: Json = {"id": "p", "choices": [{"index": 0, "text": "x", "finish_reason": "length"}]}
        if self.hands_off:
            block = f"{self.worker_id}/{len(self.received)}"
            self.kv.held.add(block)
            answer["kv_transfer_params"] = {
                "do_remote_prefill": True,
                "do_remote_decode": False,
                "remote_engine_id": self.worker_id,
                "remote_block_ids": [block],
                "remote_host": "127.0.0.1",
                "remote_port": 5600,
            }
            if self.counts is not None:
                answer["kv_transfer_params"]["eldr"] = self.counts
        return web.json_response(answer)


class FakeDecodeWorker(FakeWorker):
    """Streams or answers at once; needs transfer parameters, whose KV it takes.

    Attributes
    ----------
    n_tokens
        Tokens of an answer, one a chunk.
    pause_after, resume
        After so many chunks the stream waits for the event.
    fault, fault_after
        After so many chunks: "cut" the connection, end "without_done", or send an "error" event.
    n_left
        Streams whose reader went away.
    """

    role = "decode"

    def __init__(self, worker_id: str, kv: KvStore) -> None:
        super().__init__(worker_id, kv)
        self.n_tokens = 4
        self.pause_after: int | None = None
        self.resume = asyncio.Event()
        self.fault: str | None = None
        self.fault_after = 0
        self.needs_hand_off = True
        self.n_left = 0
        self.token_text = "t"
        self.seconds_a_token = 0.0

    async def answer(self, request: web.Request, body: Json) -> web.StreamResponse:
        hand_off = body.get("kv_transfer_params")
        if hand_off is None and self.needs_hand_off:
            return web.json_response({"error": {"message": "no kv_transfer_params"}}, status=400)
        if body.get("max_tokens", 1) < 1:
            return web.json_response({"error": {"message": "max_tokens is too small"}}, status=400)
        if hand_off is not None:
            self.kv.held.difference_update(hand_off["remote_block_ids"])
        is_chat = request.path.endswith("/chat/completions")
        try:
            if body.get("stream"):
                return await self._stream(request, body, is_chat)
            if self.pause_after is not None:
                await self.resume.wait()
            return self._whole(request, is_chat)
        except (asyncio.CancelledError, ConnectionError):
            self.n_left += 1
            raise

    def _whole(self, request: web.Request, is_chat: bool) -> web.Response:
        if self.fault == "cut":
            assert request.transport is not None
            request.transport.abort()
        text = "".join(f"t{index} " for index in range(self.n_tokens))
        choice = {"message": {"role": "assistant", "content": text}} if is_chat else {"text": text}
        choices = [{"index": 0, "finish_reason": "length", **choice}]
        return web.json_response({"id": "d", "object": "x", "choices": choices, "usage": self._usage()})

    def _usage(self) -> Json:
        n_tokens = self.n_tokens
        return {"prompt_tokens": 7, "completion_tokens": n_tokens, "total_tokens": 7 + n_tokens}

    async def _stream(self, request: web.Request, body: Json, is_chat: bool) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        if is_chat:
            await self._send(response, self._chunk(is_chat, role="assistant", content=""))
        for index in range(self.n_tokens):
            if self.pause_after == index:
                await self.resume.wait()
            if self.fault is not None and self.fault_after == index:
                return await self._go_wrong(request, response)
            if self.seconds_a_token:
                await asyncio.sleep(self.seconds_a_token)
            content = f"{self.token_text}{index} "
            chunk = self._chunk(is_chat, content=content) if is_chat else self._chunk(is_chat, text=content)
            await self._send(response, chunk)
        if (body.get("stream_options") or {}).get("include_usage"):
            await self._send(response, {**self._chunk(is_chat), "choices": [], "usage": self._usage()})
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _go_wrong(self, request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
        if self.fault == "cut":
            assert request.transport is not None
            request.transport.abort()
        elif self.fault == "error":
            await self._send(response, {"error": {"message": "engine died", "type": "x", "code": 500}})
            await response.write(b"data: [DONE]\n\n")
        return response

    def _chunk(self, is_chat: bool, **fields: str) -> Json:
        kind = "chat.completion.chunk" if is_chat else "text_completion"
        choice = {"index": 0, "finish_reason": None, **({"delta": fields} if is_chat else fields)}
        return {"id": "d", "object": kind, "created": 1, "model": "tiny", "choices": [choice]}

    async def _send(self, response: web.StreamResponse, document: Json) -> None:
        await response.write(b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n")
