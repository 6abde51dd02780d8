"""The control plane as a router sees it: a configuration with its ETag, artifacts, heartbeats, telemetry."""

import asyncio
import json
from typing import Any

from aiohttp import web

Json = dict[str, Any]


class FakeControlPlane:
    """Serves one fleet over HTTP on loopback.

    Attributes
    ----------
    config
        The document that `routing-config` answers with; None for 404.
    is_down
        Answer everything with 503.
    telemetry_seconds
        How long it takes to take telemetry.
    events, blobs
        What telemetry brought, each blob once.
    """

    def __init__(self, fleet: str, api_key: str) -> None:
        self.fleet = fleet
        self.api_key = api_key
        self.config: Json | None = None
        self.artifacts: dict[str, bytes] = {}
        self.is_down = False
        self.telemetry_seconds = 0.0
        self.heartbeats: list[Json] = []
        self.events: list[Json] = []
        self.blobs: list[Json] = []
        self.n_config_calls = 0
        self.n_not_modified = 0
        self.url = ""
        self._runner: web.AppRunner | None = None

    async def start(self, port: int = 0) -> None:
        app = web.Application(client_max_size=1 << 26, middlewares=[self._guard])
        base = f"/v1/fleets/{self.fleet}"
        app.router.add_get(f"{base}/routing-config", self._routing_config)
        app.router.add_get(f"{base}/artifacts/{{content_hash}}", self._artifact)
        app.router.add_post(f"{base}/routers/heartbeat", self._heartbeat)
        app.router.add_post(f"{base}/telemetry", self._telemetry)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {self.api_key}":
            return web.Response(status=401)
        if self.is_down:
            return web.Response(status=503)
        return await handler(request)

    async def _routing_config(self, request: web.Request) -> web.Response:
        self.n_config_calls += 1
        if self.config is None:
            return web.Response(status=404)
        etag = f'"{self.config["generation"]}"'
        if request.headers.get("If-None-Match") == etag:
            self.n_not_modified += 1
            return web.Response(status=304, headers={"ETag": etag})
        return web.json_response(self.config, headers={"ETag": etag})

    async def _artifact(self, request: web.Request) -> web.Response:
        data = self.artifacts.get(request.match_info["content_hash"])
        return web.Response(status=404) if data is None else web.Response(body=data)

    async def _heartbeat(self, request: web.Request) -> web.Response:
        self.heartbeats.append(json.loads(await request.read()))
        return web.Response(status=204)

    async def _telemetry(self, request: web.Request) -> web.Response:
        batch = json.loads(await request.read())
        await asyncio.sleep(self.telemetry_seconds)
        self.events += batch["events"]
        self.blobs += batch["blobs"]
        n_events, n_blobs = len(batch["events"]), len(batch["blobs"])
        return web.json_response({"accepted_events": n_events, "accepted_blobs": n_blobs, "duplicates": 0})
