"""Answers in vLLM's form: JSON bodies, SSE events, errors. Text is made of plain words, one a token."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from eldr_runtime.simulated_fleet.generation_request import GenerationRequest

WORDS = (
    "river", "stone", "light", "paper", "green", "seven", "north", "glass",
    "table", "cloud", "bread", "field", "clock", "sound", "ocean", "plain",
)  # fmt: skip
DONE_EVENT = b"data: [DONE]\n\n"
ERROR_TYPES = {400: "BadRequestError", 404: "NotFoundError", 503: "ServiceUnavailableError"}


def error_document(status: int, message: str, param: str | None) -> dict[str, object]:
    """Return vLLM's error body."""
    kind = ERROR_TYPES.get(status, "InternalServerError")
    return {"error": {"message": message, "type": kind, "param": param, "code": status}}


def words_of(first_token: int, n_tokens: int) -> str:
    """Return the text of a run of generated tokens; a word with its space is a token."""
    return "".join(f" {WORDS[token % len(WORDS)]}" for token in range(first_token, first_token + n_tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerWriter:
    """Writes the answer to one request; `answer_id` already has vLLM's prefix."""

    request: GenerationRequest
    answer_id: str
    model: str
    created_unix_seconds: int

    def body(self, n_tokens: int, extra: Mapping[str, object]) -> dict[str, object]:
        """Return the JSON answer to a request that is not streamed."""
        text = words_of(0, n_tokens)
        choice: dict[str, object] = {
            "index": 0,
            "logprobs": None,
            "finish_reason": "length",
            "stop_reason": None,
        }
        if self.request.is_chat:
            choice["message"] = {"role": "assistant", "content": text, "tool_calls": []}
        else:
            choice["text"] = text
        return {
            "id": self.answer_id,
            "object": "chat.completion" if self.request.is_chat else "text_completion",
            "created": self.created_unix_seconds,
            "model": self.model,
            "choices": [choice],
            "usage": self.usage(n_tokens),
            **extra,
        }

    def usage(self, n_tokens: int) -> dict[str, int]:
        """Return the usage object."""
        prompt_tokens = self.request.prompt_tokens
        return {
            "prompt_tokens": prompt_tokens,
            "total_tokens": prompt_tokens + n_tokens,
            "completion_tokens": n_tokens,
        }

    def chunk_ends(self) -> tuple[bytes, bytes, bytes]:
        """Return what stands before the text of a chunk, and after it in other chunks and in the last."""
        mark = "\0"
        if self.request.is_chat:
            choice: dict[str, object] = {"index": 0, "delta": {"content": mark}, "logprobs": None}
        else:
            choice = {"index": 0, "text": mark, "logprobs": None}
        before, after = self._event({**choice, "finish_reason": None}).split(json.dumps(mark)[1:-1].encode())
        last = self._event({**choice, "finish_reason": "length", "stop_reason": None})
        return before, after, last.partition(json.dumps(mark)[1:-1].encode())[2]

    def role_event(self) -> bytes:
        """Return the event that opens a chat stream, without content."""
        delta = {"role": "assistant", "content": ""}
        return self._event({"index": 0, "delta": delta, "logprobs": None, "finish_reason": None})

    def usage_event(self, n_tokens: int) -> bytes:
        """Return the event before the last, for who asked for it."""
        return _sse({**self._head(), "choices": [], "usage": self.usage(n_tokens)})

    def _event(self, choice: Mapping[str, object]) -> bytes:
        document: dict[str, object] = {**self._head(), "choices": [choice]}
        if not self.request.is_chat:
            document["usage"] = None
        return _sse(document)

    def _head(self) -> dict[str, object]:
        return {
            "id": self.answer_id,
            "object": "chat.completion.chunk" if self.request.is_chat else "text_completion",
            "created": self.created_unix_seconds,
            "model": self.model,
        }


def _sse(document: Mapping[str, object]) -> bytes:
    return b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n"
