"""The whole application: who may call what, its health, its metrics, its OpenAPI document."""

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute

from controlplane.application import create_app
from controlplane.domain.alerts import Role
from controlplane.errors import NotReady
from controlplane.settings import Settings
from controlplane.storage.database import Database

OPEN_PATHS = {"/livez", "/readyz", "/metrics"}
SERVICE_PATHS = {
    ("GET", "/v1/fleets/{fleet}/routing-config"),
    ("GET", "/v1/fleets/{fleet}/artifacts/{content_hash}"),
    ("POST", "/v1/fleets/{fleet}/workers/heartbeat"),
    ("POST", "/v1/fleets/{fleet}/routers/heartbeat"),
    ("POST", "/v1/fleets/{fleet}/telemetry"),
}
DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "openapi.json"


def routes_of(app: FastAPI) -> Iterator[APIRoute]:
    for included in app.routes:
        router = getattr(included, "original_router", None)
        if router is not None:
            yield from (route for route in router.routes if isinstance(route, APIRoute))


def roles_of(route: APIRoute) -> frozenset[Role] | None:
    pending = list(route.dependant.dependencies)
    while pending:
        dependant = pending.pop()
        roles = getattr(dependant.call, "roles", None)
        if roles is not None:
            return frozenset(roles)
        pending += dependant.dependencies
    return None


def test_every_route_but_health_admits_only_named_roles() -> None:
    routes = list(routes_of(create_app(Settings())))
    assert len(routes) > 25
    for route in routes:
        if route.path not in OPEN_PATHS:
            assert roles_of(route), route.path


def test_reading_is_for_viewers_changing_for_operators() -> None:
    for route in routes_of(create_app(Settings())):
        (method,) = route.methods
        roles = roles_of(route)
        if roles is None:
            continue
        is_service = Role.SERVICE in roles
        assert is_service == ((method, route.path) in SERVICE_PATHS), route.path
        if method != "GET":
            assert Role.VIEWER not in roles, route.path
            assert is_service or Role.ADMIN in roles, route.path


def test_health_says_why_not_ready(control_plane, anonymous) -> None:
    assert anonymous.get("/livez").json() == {"status": "alive"}
    assert anonymous.get("/readyz").json() == {"status": "ready"}
    with control_plane.database.connect() as connection:
        head = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar_one()
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0000'")
    unready = anonymous.get("/readyz")
    assert (unready.status_code, "run the migrations" in unready.json()["detail"]) == (503, True)
    assert anonymous.get("/livez").status_code == 200
    with control_plane.database.connect() as connection:  # the next test shares this database
        connection.exec_driver_sql(f"UPDATE alembic_version SET version_num = '{head}'")


def test_metrics_count_requests_by_route(viewer, anonymous, fleet) -> None:
    viewer.get(f"/v1/fleets/{fleet}/settings")
    text = anonymous.get("/metrics").text
    assert 'route="/v1/fleets/{fleet}/settings",status="200"' in text
    assert fleet not in text


def test_an_application_refuses_a_database_that_is_not_migrated(tmp_path: Path) -> None:
    app = create_app(Settings(database_url=f"sqlite:///{tmp_path / 'empty.db'}"))

    async def start() -> None:
        async with app.router.lifespan_context(app):
            raise AssertionError("it started")

    with pytest.raises(NotReady, match="run the migrations"):
        asyncio.run(start())


def test_an_application_opens_and_closes_its_database(sqlite_template: Path) -> None:
    app = create_app(Settings(database_url=f"sqlite:///{sqlite_template}"))

    async def start() -> Database:
        async with app.router.lifespan_context(app) as state:
            return state["app"].database

    assert asyncio.run(start()).is_sqlite


def test_openapi_document_is_the_one_in_docs() -> None:
    document = json.dumps(create_app(Settings()).openapi(), indent=1, sort_keys=True) + "\n"
    if os.environ.get("UPDATE_DOCS") == "1":
        DOCUMENT.write_text(document)
    assert DOCUMENT.read_text() == document, "the API changed: run with UPDATE_DOCS=1 and look at the diff"
