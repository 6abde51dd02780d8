"""Builds the web application; nothing happens before `create_app`, nothing is global."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from controlplane.api import (
    alerts,
    audit,
    calibration_runs,
    decisions,
    drift,
    experiments,
    fleets,
    health,
    keys,
    metrics,
    projections,
    routers,
    routing_settings,
    telemetry,
    trace_packs,
    versions,
    workers,
)
from controlplane.api.bodies import MessageLimit
from controlplane.api.problems import Problem, install_problems
from controlplane.api.request_log import RequestLog, RequestMetrics
from controlplane.api.state import AppState, LifespanState, utc_now
from controlplane.jobs.scheduler import BackgroundJobs
from controlplane.services.renew_lease import grant_leases_anew
from controlplane.settings import Settings
from controlplane.storage.database import Database
from controlplane.storage.schema import check_schema

ROUTERS = (
    fleets.router,
    workers.router,
    routers.router,
    versions.router,
    projections.router,
    routing_settings.router,
    trace_packs.router,
    calibration_runs.router,
    telemetry.router,
    metrics.router,
    decisions.router,
    experiments.router,
    drift.router,
    alerts.router,
    keys.router,
    audit.router,
)


def create_app(settings: Settings) -> FastAPI:
    """Build the application. Its lifespan opens the database and refuses a schema that is not migrated."""
    request_metrics = RequestMetrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[LifespanState]:
        database = Database(settings.database_url)
        try:
            check_schema(database)
            grant_leases_anew(database, settings, utc_now())
            jobs = BackgroundJobs(database, settings, utc_now)
            jobs.start()
            try:
                yield {"app": AppState(settings=settings, database=database, clock=utc_now)}
            finally:
                jobs.stop()
        finally:
            database.close()

    app = FastAPI(
        title="ELDR control plane",
        version="1",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        responses={"default": {"model": Problem, "description": "Refused, with the reason (RFC 9457)"}},
    )
    install_problems(app)
    app.include_router(health.build_health_routes(request_metrics))
    for router in ROUTERS:
        app.include_router(router)
    app.add_middleware(MessageLimit, limit_bytes=settings.message_limit_bytes)
    app.add_middleware(RequestLog, metrics=request_metrics)
    return app
