"""The dashboard as a process, a fake control plane over HTTP, and Chromium."""

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, sync_playwright

REPOSITORY = Path(__file__).parents[2]
# Its timers run as in a window that somebody looks at.
IS_LOOKED_AT = ("--disable-background-timer-throttling", "--disable-backgrounding-occluded-windows",
                "--disable-renderer-backgrounding")  # fmt: skip
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
         "--disable-sync", "--use-gl=swiftshader", "--enable-unsafe-swiftshader", *IS_LOOKED_AT)  # fmt: skip
START_SECONDS = 60


def _fake(name: str) -> Any:
    path = REPOSITORY / "tests" / "fakes" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"eldr_fakes_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


fake_server = _fake("fake_dashboard_server")
fake_client = _fake("fake_dashboard_client")


@pytest.fixture(scope="session")
def chromium() -> str:
    path = shutil.which("chromium")
    if path is None and os.environ.get("CI") == "true":
        pytest.fail("chromium is missing, which CI must have: apt-get install chromium")
    if path is None:
        pytest.skip("chromium is missing: apt-get install chromium")
    return path


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    # No longer than a module: until Playwright is stopped its loop runs in this thread, and no other can.
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, headless=True, args=list(FLAGS))
        yield started
        started.close()


@pytest.fixture
def control_plane() -> Iterator[Any]:
    server = fake_server.FakeDashboardServer(fake_client.FakeDashboardClient())
    yield server
    server.close()


@pytest.fixture
def dashboard_url(chromium: str, control_plane: Any, tmp_path: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "ELDR_CONTROL_PLANE_URL": control_plane.url,
        "ELDR_DASHBOARD_API_KEY": fake_server.API_KEY,
        "ELDR_FLEET": fake_client.FLEET,
        "HOME": str(tmp_path),
    }
    command = [sys.executable, "-m", "streamlit", "run", "app/dashboard.py", "--server.port", str(port)]
    log = (tmp_path / "streamlit.log").open("w")
    with log, subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=log, stderr=log) as process:
        url = f"http://127.0.0.1:{port}"
        _wait_for(url, process, tmp_path / "streamlit.log")
        yield url
        process.terminate()


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        try:
            if httpx.get(f"{url}/_stcore/health", trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.2)
    pytest.fail(f"the dashboard did not start in {START_SECONDS} s: {log.read_text()}")


# A page that raises does so in every theme: the second costs a minute, and is for pictures.
@pytest.fixture(params=["light", "dark"] if "ELDR_SCREENSHOTS" in os.environ else ["light"])
def theme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def page(theme: str, browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1440, "height": 900}, color_scheme=theme)
    opened = context.new_page()
    opened.set_default_timeout(60_000)
    yield opened
    context.close()
