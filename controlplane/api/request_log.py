"""Around every request: its id, its log line, its metrics, and an answer where it fails unexpectedly."""

import logging
import re
import secrets
import time

from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from controlplane.api.problems import problem_of_unexpected

logger = logging.getLogger(__name__)

REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
LATENCY_BUCKETS_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class RequestMetrics:
    """Counters of one application in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "eldr_controlplane_requests",
            "Requests by route and status",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "eldr_controlplane_request_seconds",
            "Time to the end of the answer",
            ["route"],
            registry=self.registry,
            buckets=LATENCY_BUCKETS_SECONDS,
        )


class RequestLog:
    """ASGI middleware. It logs method, path, status and time, and never a header, a query or a body."""

    def __init__(self, app: ASGIApp, metrics: RequestMetrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = _request_id(scope)
        scope.setdefault("state", {})["request_id"] = request_id
        started = time.monotonic()
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-Id"] = request_id
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        except Exception:  # the edge of the process: logged, answered, not passed on
            logger.exception("request %s failed unexpectedly", request_id)
            if status == 0:
                await problem_of_unexpected(request_id)(scope, receive, send_with_id)
        finally:
            self._record(scope, request_id, status, time.monotonic() - started)

    def _record(self, scope: Scope, request_id: str, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "unknown")
        method = scope["method"] if route != "unknown" else "any"
        self.metrics.requests.labels(method, route, str(status)).inc()
        self.metrics.seconds.labels(route).observe(seconds)
        logger.info(
            "%s %s %s %.1f ms request_id=%s",
            scope["method"],
            scope["path"],
            status,
            seconds * 1000,
            request_id,
        )


def _request_id(scope: Scope) -> str:
    given = Headers(scope=scope).get("x-request-id", "")
    return given if REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
