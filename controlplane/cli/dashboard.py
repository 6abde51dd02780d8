"""`eldr dashboard`: the dashboard as one process."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import click


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
