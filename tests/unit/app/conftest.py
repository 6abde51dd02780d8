"""The fake client, and a page under Streamlit's own test runner."""

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

RUN_SECONDS = 60


@pytest.fixture(autouse=True)
def main_module_kept() -> Iterator[None]:
    """Put `__main__` back: Streamlit makes the page it, and child processes of later tests would run that."""
    main = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = main


def _fake_client() -> Any:
    path = Path(__file__).parents[2] / "fakes" / "fake_dashboard_client.py"
    spec = importlib.util.spec_from_file_location("eldr_fakes_fake_dashboard_client", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.FakeDashboardClient


def _script(page: str, client: object) -> None:
    import importlib  # noqa: PLC0415  (Streamlit runs this function's source alone)

    from app.confirm import show_notice, show_pending  # noqa: PLC0415

    show_notice(client)
    importlib.import_module(f"app.views.{page}").render(client)
    show_pending(client)


@pytest.fixture(scope="session")
def make_client() -> Callable[..., Any]:
    """Make a fake client in a state: data, empty, forbidden, error, down."""
    return _fake_client()


@pytest.fixture
def client(make_client: Callable[..., Any]) -> Any:
    return make_client()


@pytest.fixture
def open_page() -> Callable[[str, Any], AppTest]:
    """Run a page with a client."""

    def run(page: str, client: Any) -> AppTest:
        return AppTest.from_function(_script, args=(page, client), default_timeout=RUN_SECONDS).run()

    return run
