"""`eldr controlplane`: the control plane as one process."""

import os
from datetime import UTC, datetime

import click
import uvicorn

from controlplane.application import create_app
from controlplane.domain.alerts import NewApiKey
from controlplane.services.manage_keys import bootstrap_admin_key
from controlplane.settings import Settings
from controlplane.storage.database import Database
from controlplane.storage.schema import check_schema, migrate
from eldr_runtime.cli.console import say

STOP_SECONDS = 10


@click.command("controlplane")
@click.option(
    "--migrate", "shall_migrate", is_flag=True, help="Bring the database's schema up to date first."
)
def controlplane_command(shall_migrate: bool) -> None:
    """Serve the control plane; its settings are ELDR_ variables in the environment.

    Where there is no usable admin key, one is made and printed, once.
    """
    settings = Settings.from_environment(os.environ)
    made = _prepare(settings, shall_migrate=shall_migrate)
    if made is not None:
        say(f"admin key, shown this once: {made.secret}")
    uvicorn.run(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        log_level=settings.log_level,
        access_log=False,
        timeout_graceful_shutdown=STOP_SECONDS,
    )


def _prepare(settings: Settings, *, shall_migrate: bool) -> NewApiKey | None:
    """Migrate if asked, refuse a schema of another revision, and make an admin key if there is none."""
    database = Database(settings.database_url)
    try:
        database.check_reachable()
        if shall_migrate:
            migrate(database)
        check_schema(database)
        return bootstrap_admin_key(database, datetime.now(UTC))
    finally:
        database.close()
