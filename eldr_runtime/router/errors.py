"""How a request can fail in the router, as one tree; on OpenAI's paths each becomes OpenAI's error shape.

::

    RouterError (an EldrError)      HTTP status, type and code of the answer
    ├── BadRequest                  400: what the client sent cannot be served
    ├── BodyTooLarge                413
    ├── Overloaded                  429: as many requests in flight as the router takes
    ├── NoWorker                    503: nobody to send it to, with the reason
    ├── UpstreamRefused             a worker's own 4xx, passed through
    ├── UpstreamFailed              502: connection, 5xx, or a broken answer before the first byte
    │   └── UpstreamTimeout         504
    ├── StreamBroken                after the first byte: an event in the stream, never a status
    └── ClientGone                  nobody is left to answer
"""

import json

from eldr_runtime.errors import EldrError

RETRY_AFTER_SECONDS = 1


class RouterError(EldrError):
    """Base of all ways in which a request ends without its answer."""

    status = 500
    error_type = "internal_error"
    code = "internal_error"
    retry_after_seconds: int | None = None

    def __init__(self, message: str, *, parameter: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.parameter = parameter

    def to_body(self) -> bytes:
        """Return the error in OpenAI's shape."""
        return error_body(self.message, self.error_type, self.code, self.parameter)

    def to_event(self) -> bytes:
        """Return the error as one server-sent event, which OpenAI's client raises."""
        return b"event: error\ndata: " + self.to_body() + b"\n\n"


class BadRequest(RouterError):
    """The client's request cannot be served as it is."""

    status = 400
    error_type = "invalid_request_error"
    code = "invalid_request"


class BodyTooLarge(BadRequest):
    """The request's body is over the limit."""

    status = 413
    code = "body_too_large"


class Overloaded(RouterError):
    """The router has as many requests in flight as it takes."""

    status = 429
    error_type = "overloaded_error"
    code = "overloaded"
    retry_after_seconds = RETRY_AFTER_SECONDS


class NoWorker(RouterError):
    """No worker of a role can take the request now."""

    status = 503
    error_type = "unavailable_error"
    code = "no_worker"
    retry_after_seconds = RETRY_AFTER_SECONDS


class UpstreamRefused(RouterError):
    """A worker answered 4xx: the request is at fault, and the worker's own words say why."""

    error_type = "invalid_request_error"
    code = "refused_by_worker"

    def __init__(self, status: int, body: bytes, retry_after: str | None = None) -> None:
        super().__init__(f"the worker refused the request with status {status}")
        self.status = status
        if retry_after is not None and retry_after.isdigit():
            self.retry_after_seconds = int(retry_after)
        self._body = body

    def to_body(self) -> bytes:
        """Return the worker's error where it has OpenAI's shape, else our own."""
        try:
            document = json.loads(self._body)
        except ValueError:
            return super().to_body()
        is_openai = isinstance(document, dict) and isinstance(document.get("error"), dict)
        return self._body if is_openai else super().to_body()


class UpstreamFailed(RouterError):
    """A worker failed before the first byte went to the client.

    `is_untouched` says that the worker cannot have begun: KV meant for it is still there to be fetched.
    """

    status = 502
    error_type = "upstream_error"
    code = "upstream_failed"

    def __init__(self, message: str, *, worker_id: str, is_untouched: bool = False) -> None:
        super().__init__(message)
        self.worker_id = worker_id
        self.is_untouched = is_untouched


class UpstreamTimeout(UpstreamFailed):
    """A worker did not answer in time."""

    status = 504
    code = "upstream_timeout"


class StreamBroken(RouterError):
    """The stream ended early, after the client had its first byte."""

    error_type = "upstream_error"
    code = "stream_broken"


class ClientGone(RouterError):
    """The client closed its connection."""

    status = 499
    code = "client_gone"


def error_body(message: str, error_type: str, code: str, parameter: str | None = None) -> bytes:
    """Return an error document in OpenAI's shape."""
    error = {"message": message, "type": error_type, "param": parameter, "code": code}
    return json.dumps({"error": error}, separators=(",", ":")).encode()
