"""The fake client's values over the wire: a small HTTP control plane; the dashboard's client is real."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import SHUT_RDWR, socket
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from controlplane.client_transport import Refused
from controlplane.domain.alerts import Acknowledge, Silence
from controlplane.domain.calibrations import StartCalibration
from controlplane.domain.telemetry import StartExperiment
from controlplane.domain.versions import Promote, RollBack, Tune
from eldr_runtime.json_values import from_json_value, to_json_value

API_KEY = "eldr_test_0123456789"
LISTS = {
    "workers": "workers",
    "routers": "routers",
    "versions": "versions",
    "activations": "activations",
    "trace-packs": "trace_packs",
    "calibration-runs": "calibration_runs",
    "experiments": "experiments",
    "alerts": "alerts",
}
ITEMS = {"calibration-runs": "calibration_run", "experiments": "experiment", "decisions": "decision"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A call as it arrived."""

    method: str
    path: str
    idempotency_key: str | None
    if_match: str | None
    body: dict[str, Any]


class FakeDashboardServer:
    """Serves one fake client on loopback; `log` keeps each call."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.log: list[Sent] = []
        self._connections: list[socket] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """Stop, and end the connections that clients keep: their threads would go on answering."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        for connection in self._connections:
            with suppress(OSError):  # the client was first
                connection.shutdown(SHUT_RDWR)
        self._connections.clear()

    def opened(self, connection: socket) -> None:
        """Note a connection, so that it ends with the server."""
        self._connections.append(connection)

    def sent(self, method: str, ending: str) -> list[Sent]:
        """Calls of a method to paths with this ending, previews left out."""
        return [
            each
            for each in self.log
            if each.method == method and each.path.endswith(ending) and "dry_run" not in each.path
        ]

    def answer(self, method: str, target: str, body: Any) -> Any:
        split = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(split.query).items()}
        parts = [unquote(part) for part in split.path.strip("/").split("/")][1:]
        if parts == ["fleets"]:
            return _page(self.client.fleets())
        if parts == ["audit"]:
            return _page(self.client.audit(_moment(query)))
        rest = parts[2:]
        return self._read(rest, query) if method == "GET" else self._act(rest, query, body)

    def _read(self, rest: list[str], query: dict[str, str]) -> Any:
        client = self.client
        readers: dict[str, Callable[[], Any]] = {
            "status": client.status,
            "settings": client.settings,
            "live": lambda: client.live_at(datetime.fromisoformat(query["at"])),
            "metrics": lambda: _page(client.metrics(query["by"], _moment(query))),
            "unions": lambda: _page(client.unions(_moment(query))),
            "drift": lambda: _page(client.drift_checks(_moment(query))),
            "decisions": lambda: _page(client.decisions(int(query["limit"]))),
        }
        if len(rest) == 1:
            return readers[rest[0]]() if rest[0] in readers else _page(getattr(client, LISTS[rest[0]])())
        if rest == ["settings", "revisions"]:
            return _page(client.settings_revisions())
        if rest[0] == "versions" and rest[2] == "projection":
            return client.projection(rest[1], is_live=query["live"] == "true", limit=int(query["limit"]))
        if rest[0] == "versions":
            return client.cluster_experts(rest[1], int(rest[3]))
        if rest[-1] == "report":
            return client.calibration_report(rest[1])
        return getattr(client, ITEMS[rest[0]])(rest[1])

    def _act(self, rest: list[str], query: dict[str, str], body: Any) -> Any:
        client, verb = self.client, rest[-1]
        reason = body.get("reason", "")
        actions: dict[str, Callable[[], Any]] = {
            "promote": lambda: (
                client.preview_promotion(rest[1])
                if "dry_run" in query
                else client.promote(rest[1], from_json_value(Promote, body))
            ),
            "reject": lambda: client.reject(rest[1], reason),
            "rollback": lambda: client.roll_back(from_json_value(RollBack, body)),
            "settings": lambda: (
                client.preview_tuning(from_json_value(Tune, body))
                if "dry_run" in query
                else client.tune(from_json_value(Tune, body), revision=0)
            ),
            "drain": lambda: client.drain(rest[1], reason),
            "resume": lambda: client.resume(rest[1], reason),
            "calibration-runs": lambda: client.start_calibration(from_json_value(StartCalibration, body)),
            "cancel": lambda: client.cancel_calibration(rest[1], reason),
            "experiments": lambda: client.start_experiment(from_json_value(StartExperiment, body)),
            "stop": lambda: client.stop_experiment(rest[1], reason),
            "acknowledge": lambda: client.acknowledge(rest[1], from_json_value(Acknowledge, body).reason),
            "silence": lambda: client.silence(rest[1], from_json_value(Silence, body)),
        }
        return actions[verb]()


def _moment(query: dict[str, str]) -> datetime | None:
    return datetime.fromisoformat(query["since"]) if "since" in query else None


def _page(items: tuple[Any, ...]) -> dict[str, Any]:
    return {"items": [to_json_value(item) for item in items], "next_cursor": None}


def _handler(server: FakeDashboardServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            server.opened(self.connection)

        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else {}
            server.log.append(
                Sent(
                    method=self.command,
                    path=self.path,
                    idempotency_key=self.headers.get("Idempotency-Key"),
                    if_match=self.headers.get("If-Match"),
                    body=body,
                )
            )
            if self.headers.get("Authorization") != f"Bearer {API_KEY}":
                problem = {
                    "title": "Unauthorized",
                    "status": 401,
                    "detail": "no such key",
                    "request_id": "req-401",
                }
                self._send(401, problem)
                return
            try:
                self._send(200, _plain(server.answer(self.command, self.path, body)))
            except Refused as error:
                self._send(error.problem.status, to_json_value(error.problem))

        do_GET = do_POST = do_PATCH = _serve

        def _send(self, status: int, content: Any) -> None:
            payload = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    return Handler


def _plain(answer: Any) -> Any:
    return answer if isinstance(answer, dict) else to_json_value(answer)
