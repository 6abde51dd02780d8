"""Whether the process lives, whether it can serve, and its metrics."""

import ipaddress

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from controlplane.api.request_log import RequestMetrics
from controlplane.api.security import Bearer
from controlplane.api.state import AppState, State
from controlplane.errors import Unauthenticated
from controlplane.services.manage_keys import authenticate
from controlplane.storage.schema import check_schema


def build_health_routes(metrics: RequestMetrics) -> APIRouter:
    """Build the routes that need no key; `/metrics` needs one unless it is asked for on this machine."""
    router = APIRouter(tags=["health"])

    @router.get("/livez")
    def livez() -> dict[str, str]:
        """Answer: the process lives."""
        return {"status": "alive"}

    @router.get("/readyz")
    def readyz(state: State) -> dict[str, str]:
        """Answer: the database is reachable and has the schema this program needs; 503 says why not."""
        state.database.check_reachable()
        check_schema(state.database)
        return {"status": "ready"}

    @router.get("/metrics", response_class=Response)
    def prometheus_metrics(request: Request, state: State, token: Bearer) -> Response:
        """Answer the metrics of this process in Prometheus' text format."""
        if not _is_loopback(request):
            _check_key(state, token.credentials if token is not None else "")
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return router


def _is_loopback(request: Request) -> bool:
    if request.client is None:
        return False
    try:
        return ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:
        return False


def _check_key(state: AppState, token: str) -> None:
    if not token:
        raise Unauthenticated("metrics are open on this machine; from elsewhere they need an API key")
    with state.database.read() as session:
        authenticate(session, token, state.clock())
