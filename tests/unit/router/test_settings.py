from pathlib import Path

import pytest

from eldr_runtime.errors import InvalidConfig
from eldr_runtime.router.settings import RouterSettings

SETTINGS = RouterSettings(
    control_plane_url="http://c", fleet="f", data_dir=Path("d"), router_id="r", api_key="secret"
)


def test_the_environment_changes_numbers() -> None:
    environment = {
        "ELDR_ROUTER_CONNECT_SECONDS": "0.5",
        "ELDR_ROUTER_MAX_IN_FLIGHT": "7",
        "ELDR_ROUTER_HEARTBEAT_SECONDS": "3",
        "ELDR_API_KEY": "no business of this",
        "PATH": "/bin",
    }
    changed = SETTINGS.with_environment(environment)
    assert changed.timeouts.connect_seconds == 0.5
    assert changed.bounds.max_in_flight == 7
    assert changed.pace.heartbeat_seconds == 3.0
    assert SETTINGS.with_environment({}) == SETTINGS


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FLEET", "x"), ("CONNECT_SECOND", "1"), ("CONNECT_SECONDS", "soon"), ("CONNECT_SECONDS", "0"),
        ("CONNECT_SECONDS", "nan"), ("MAX_IN_FLIGHT", "1.5"), ("MINIMUM_COVERAGE_SHARE", "1.1"),
    ],
)  # fmt: skip
def test_what_is_not_known_or_no_number_is_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig, match=name.lower() if value in ("0", "nan", "1.1") else name):
        SETTINGS.with_environment({f"ELDR_ROUTER_{name}": value})


def test_the_key_is_not_shown() -> None:
    assert "secret" not in repr(SETTINGS)


def test_an_address_must_be_one() -> None:
    with pytest.raises(InvalidConfig, match="control_plane_url is 'localhost:80'"):
        RouterSettings(control_plane_url="localhost:80", fleet="f", data_dir=Path("d"))
