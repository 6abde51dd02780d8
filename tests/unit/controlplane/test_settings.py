import os
from dataclasses import fields
from pathlib import Path

import pytest

from controlplane.errors import InvalidSettings
from controlplane.settings import Settings, variable_name

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "settings.md"
HEAD = (
    "Variables of the environment, read once at the start; one with the prefix that is not listed is refused."
)


def test_defaults_need_no_variable() -> None:
    assert Settings.from_environment({"PATH": "/bin"}) == Settings()


def test_variables_are_parsed_to_the_type_of_their_default() -> None:
    settings = Settings.from_environment(
        {"ELDR_PORT": "9000", "ELDR_LEASE_SECONDS": "20", "ELDR_WORKER_HOSTS": "10.0.0.0/8"}
    )
    assert (settings.port, settings.lease_seconds, settings.worker_hosts) == (9000, 20.0, "10.0.0.0/8")


def test_variables_of_other_processes_are_left_alone() -> None:
    others = ("ELDR_API_KEY", "ELDR_SHARED_DATA", "ELDR_ROUTER_CONNECT_SECONDS", "ELDR_DASHBOARD_API_KEY")
    assert Settings.from_environment(dict.fromkeys(others, "x")) == Settings()


def test_an_unknown_variable_is_an_error_and_names_no_value() -> None:
    with pytest.raises(InvalidSettings, match="ELDR_DATABSE_URL") as caught:
        Settings.from_environment({"ELDR_DATABSE_URL": "postgresql://user:secret@host/name"})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ELDR_PORT", "http"),
        ("ELDR_PORT", "0"),
        ("ELDR_PORT", "65536"),
        ("ELDR_LEASE_SECONDS", "nan"),
        ("ELDR_LEASE_SECONDS", "3"),
        ("ELDR_LOG_LEVEL", "loud"),
        ("ELDR_ARTIFACT_LIMIT_BYTES", "-1"),
    ],
)
def test_a_value_outside_its_limit_is_refused(name: str, text: str) -> None:
    with pytest.raises(InvalidSettings, match=name):
        Settings.from_environment({name: text})


def test_the_table_in_the_docs_has_every_field() -> None:
    lines = [
        "# Settings of the control plane",
        "",
        HEAD,
        "",
        "| variable | default | what |",
        "|---|---|---|",
    ]
    for item in fields(Settings):
        default = f"`{item.default}`" if item.default != "" else ""
        lines.append(f"| `{variable_name(item)}` | {default} | {item.metadata['help']} |")
    table = "\n".join(lines) + "\n"
    if os.environ.get("UPDATE_DOCS") == "1":
        DOCUMENT.write_text(table)
    assert DOCUMENT.read_text() == table, "the settings changed: run with UPDATE_DOCS=1"


def test_every_field_explains_itself_with_its_unit() -> None:
    for item in fields(Settings):
        assert item.metadata["help"], item.name
        assert variable_name(item) == f"ELDR_{item.name.upper()}"
        for unit in ("seconds", "bytes"):
            if item.name.endswith(f"_{unit}"):
                assert unit in item.metadata["help"], item.name


@pytest.mark.parametrize(
    ("host", "is_allowed"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("::1", True),
        ("localhost", True),
        ("LOCALHOST", True),
        ("localhost.example.org", False),
        ("10.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("", False),
    ],
)
def test_workers_are_on_this_machine_unless_told_otherwise(host: str, is_allowed: bool) -> None:
    assert Settings().allows_worker_host(host) is is_allowed
