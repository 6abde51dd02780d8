"""Server-sent events of a decode worker: passed on as bytes, looked into as little as the figures need."""

import json
import re

from eldr_runtime.router.errors import UpstreamFailed

DONE_EVENT = b"data: [DONE]\n\n"
MAX_EVENT_BYTES = 1 << 20
_BOUNDARY = b"\n\n"
# A non-empty text in a chunk. Inside a JSON string the quotes around a key are escaped, so a model that
# writes such a text is not mistaken for one; the chunk with the role alone has an empty content.
_CONTENT = re.compile(
    rb'"(?:text|content|reasoning_content|reasoning|refusal)":\s?"[^"]|"tool_calls":\s?\[\s?\{'
)
_NULL_USAGE = re.compile(rb'"usage":\s?null')


class EventStream:
    """Reader of one answer's events.

    `feed` returns what the client is to get: whole events, without the usage where the client asked for none.

    Attributes
    ----------
    is_done
        Whether `[DONE]` has come.
    error
        The `error` object a worker put into its stream, with nothing after it passed on.
    prompt_tokens, completion_tokens
        From `usage`; None until it comes.
    """

    def __init__(self, *, worker_id: str, is_usage_wanted: bool) -> None:
        self.is_done = False
        self.error: str | None = None
        self.prompt_tokens: int | None = None
        self.completion_tokens: int | None = None
        self.has_content = False
        self._worker_id = worker_id
        self._is_usage_wanted = is_usage_wanted
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """Take bytes from the worker; return whole events for the client and set `has_content` for them."""
        self.has_content = False
        if self._rest:
            data = self._rest + data
            self._rest = b""
        if not data.endswith(_BOUNDARY):
            end = data.rfind(_BOUNDARY) + len(_BOUNDARY) if _BOUNDARY in data else 0
            self._rest = data[end:]
            data = data[:end]
            if len(self._rest) > MAX_EVENT_BYTES:
                message = f"an event of worker {self._worker_id} is over {MAX_EVENT_BYTES} bytes"
                raise UpstreamFailed(message, worker_id=self._worker_id)
        if self.is_done or self.error is not None:
            return b""
        if data.count(b'"usage"') > len(_NULL_USAGE.findall(data)) or b'"error"' in data:
            data = self._look_into(data)
        self.has_content = _CONTENT.search(data) is not None
        if data.endswith(DONE_EVENT):
            self.is_done = True
        return data

    def _look_into(self, data: bytes) -> bytes:
        """Parse each event; take usage and errors out."""
        kept = []
        for event in data.split(_BOUNDARY):
            if not event:
                continue
            if self.error is None and self._is_for_client(event):
                kept.append(event + _BOUNDARY)
        return b"".join(kept)

    def _is_for_client(self, event: bytes) -> bool:
        document = _document(event)
        if document is None:
            return True
        if document.get("error"):
            self.error = _error_message(document["error"])
            return False
        usage = document.get("usage")
        if not isinstance(usage, dict):
            return True
        self.prompt_tokens = token_count(usage, "prompt_tokens")
        self.completion_tokens = token_count(usage, "completion_tokens")
        return self._is_usage_wanted or bool(document.get("choices"))


def token_count(usage: dict[str, object], name: str) -> int | None:
    """Return a count of `usage`, None if it is no whole number of at least 0."""
    value = usage.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _document(event: bytes) -> dict[str, object] | None:
    """Return the JSON object of an event, None for `[DONE]`, comments and what is not JSON."""
    lines = [line[5:] for line in event.split(b"\n") if line.startswith(b"data:")]
    try:
        document = json.loads(b"\n".join(lines))
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _error_message(error: object) -> str:
    message = error.get("message") if isinstance(error, dict) else error
    return str(message)
