"""Reads one streamed answer as a client: when content came, what usage says, how it ended."""

import json
import re

# A non-empty text in a chunk; inside a JSON string the quotes around a key are escaped.
_CONTENT = re.compile(rb'"(?:text|content)":\s?"[^"]')
_NEEDS_A_LOOK = re.compile(rb'"error"|"usage":\s?\{|\[DONE\]')
_BOUNDARY = b"\n\n"


class AnswerReader:
    """Feed it what arrives; it parses only the events that are no plain content."""

    def __init__(self) -> None:
        self.first_content_seconds: float | None = None
        self.last_content_seconds: float | None = None
        self.completion_tokens: int | None = None
        self.is_done = False
        self.error: str | None = None
        self._rest = b""

    def feed(self, data: bytes, now_seconds: float) -> None:
        """Take bytes that arrived now."""
        if self._rest:
            data = self._rest + data
            self._rest = b""
        if not data.endswith(_BOUNDARY):
            data, boundary, self._rest = data.rpartition(_BOUNDARY)
            data += boundary
        if _CONTENT.search(data):
            if self.first_content_seconds is None:
                self.first_content_seconds = now_seconds
            self.last_content_seconds = now_seconds
        if _NEEDS_A_LOOK.search(data):
            for event in data.split(_BOUNDARY):
                self._look_at(event)

    def failure(self, asked_tokens: int) -> str | None:
        """Return why this answer, at its end, is not what was asked for; None if it is."""
        if self.error is not None:
            return f"error event: {self.error}"
        if not self.is_done:
            return "cut stream: it ended without [DONE]"
        if self.completion_tokens != asked_tokens:
            return f"wrong token count: usage says {self.completion_tokens}, asked for {asked_tokens}"
        if self.first_content_seconds is None:
            return "no content in the stream"
        return None

    def _look_at(self, event: bytes) -> None:
        lines = event.split(b"\n")
        payload = b"".join(line.removeprefix(b"data:").strip() for line in lines if line.startswith(b"data:"))
        if payload == b"[DONE]":
            self.is_done = True
            return
        if not _NEEDS_A_LOOK.search(payload):
            return
        try:
            document = json.loads(payload)
        except ValueError:
            self.error = f"not JSON: {payload[:80]!r}"
            return
        if isinstance(document, dict):
            self._take(document)

    def _take(self, document: dict[str, object]) -> None:
        error, usage = document.get("error"), document.get("usage")
        if error:
            message = error.get("message") if isinstance(error, dict) else None
            self.error = str(message if message is not None else error)
        if isinstance(usage, dict) and isinstance(usage.get("completion_tokens"), int):
            self.completion_tokens = usage["completion_tokens"]
