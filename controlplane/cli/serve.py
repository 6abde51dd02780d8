"""`eldr controlplane`: the control plane as one process."""

import os
from datetime import UTC, datetime

import click
import uvicorn

from controlplane.application import create_app
from controlplane.services.manage_keys import bootstrap_admin_key
from controlplane.settings import Settings
from controlplane.storage.database import Database
from controlplane.storage.schema import migrate
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
    if shall_migrate:
        _migrate(settings)
    uvicorn.run(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        log_level=settings.log_level,
        access_log=False,
        timeout_graceful_shutdown=STOP_SECONDS,
    )


def _migrate(settings: Settings) -> None:
    database = Database(settings.database_url)
    try:
        migrate(database)
        made = bootstrap_admin_key(database, datetime.now(UTC))
    finally:
        database.close()
    if made is not None:
        say(f"admin key, shown this once: {made.secret}")
