"""`eldr controlplane` and `eldr dashboard`: one process each."""

import os
import sys
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

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


@click.command("dashboard")
@click.option("--control-plane", "url", required=True, metavar="URL", help="Address of the control plane.")
@click.option("--fleet", required=True, metavar="NAME", help="Fleet to show first.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(1, 65_535), default=8501, show_default=True, help="Port.")
@click.option(
    "--api-key",
    envvar="ELDR_DASHBOARD_API_KEY",
    metavar="KEY",
    help="Sign everybody in with this key; without it each viewer gives a key. Better given as "
    "ELDR_DASHBOARD_API_KEY.",
)
def dashboard_command(url: str, fleet: str, host: str, port: int, api_key: str | None) -> None:
    """Serve the dashboard. The process becomes Streamlit's."""
    environment = {**os.environ, "ELDR_CONTROL_PLANE_URL": url, "ELDR_FLEET": fleet}
    if api_key is not None:
        environment["ELDR_DASHBOARD_API_KEY"] = api_key
    page = dashboard_file()
    options = ["--server.address", host, "--server.port", str(port), "--server.headless", "true"]
    arguments = [sys.executable, "-m", "streamlit", "run", str(page), *options]
    # Streamlit reads its theme from `.streamlit` of the folder it starts in.
    os.chdir(page.parents[1])
    os.execve(sys.executable, arguments, environment)


def dashboard_file() -> Path:
    """Return the file of the dashboard without importing it: only Streamlit runs it."""
    spec = find_spec("app")
    if spec is None or not spec.submodule_search_locations:
        raise click.ClickException("the dashboard's package `app` is not installed")
    return Path(spec.submodule_search_locations[0]) / "dashboard.py"
