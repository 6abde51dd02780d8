"""What a command says when it cannot find a control plane to speak to."""

from pathlib import Path

import pytest

from controlplane.cli.run_folder import Keys, Run, RunFolder

NOBODY = "http://127.0.0.1:9"


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """Folder of a run whose processes are gone."""
    folder = RunFolder(path=tmp_path / "data")
    folder.make()
    folder.write_keys(Keys(admin="eldr_a_1", operator="eldr_o_2", service="eldr_s_3"))
    folder.write_run(
        Run(
            fleet="demo",
            control_plane_url=NOBODY,
            router_url=NOBODY,
            dashboard_url=None,
            fleet_control_url=None,
            load_control_url=NOBODY,
        )
    )
    return folder


def test_without_a_run_the_folder_is_named(eldr, tmp_path: Path) -> None:
    ended = eldr("versions", "list", "--data", tmp_path / "nothing")
    assert (ended.status, ended.out) == (2, "")
    assert "no `eldr up` runs with --data" in ended.err
    assert len(ended.err.splitlines()) == 1


@pytest.mark.parametrize(
    "command", [("tau", "show"), ("alerts", "list"), ("keys", "list"), ("drift", "list")]
)
def test_a_control_plane_that_is_not_there_is_one_line_and_status_2(eldr, folder: RunFolder, command) -> None:
    ended = eldr(*command, "--data", folder.path)
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith(f"eldr: no answer from {NOBODY}: ConnectError")
    assert len(ended.err.splitlines()) == 1


def test_drift_cannot_be_injected_where_nothing_takes_it(eldr, folder: RunFolder) -> None:
    ended = eldr("drift", "inject", "--data", folder.path)
    assert ended.status == 2
    assert ended.err.startswith(f"eldr: no answer from the load generator at {NOBODY}/mix")


def test_another_control_plane_needs_fleet_and_key_and_never_gets_the_folders(
    eldr, folder: RunFolder
) -> None:
    here = ("--data", folder.path, "--control-plane", NOBODY)
    assert "needs --fleet" in eldr("tau", "show", *here).err
    ended = eldr("tau", "show", *here, "--fleet", "demo")
    assert (ended.status, ended.out) == (2, "")
    assert "no key: set ELDR_API_KEY" in ended.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tau", "set", "0.2"), "Missing option '--reason'"),
        (("tau", "set", "much", "--reason", "r"), "'much' is not a valid float"),
        (("versions", "promote", "0", "--reason", "r"), "0 is not in the range"),
        (("up", "--auto"), "give --demo too"),
        (("up", "--decode", "65"), "65 is not in the range"),
        (("keys", "create", "me", "--role", "king", "--reason", "r"), "'king' is not one of"),
        (("alerts", "list", "--state", "loud"), "'loud' is not one of"),
    ],
)
def test_what_is_wrong_in_a_command_line_is_said_with_status_2(
    eldr, folder: RunFolder, arguments, message: str
) -> None:
    ended = eldr(*arguments, "--data", folder.path)
    assert (ended.status, ended.out) == (2, "")
    assert message in ended.err


def test_a_moment_needs_a_time_zone(eldr, folder: RunFolder) -> None:
    for text, message in (("noon", "is no RFC 3339 time"), ("2026-03-01T12:00:00", "has no time zone")):
        ended = eldr("versions", "live", "--at", text, "--data", folder.path)
        assert ended.status == 2
        assert message in ended.err


@pytest.mark.parametrize(
    ("address", "key", "said"),
    [
        ("http://[::1", "eldr_a_1", "'http://[::1' is no address of a control plane"),
        ("http://127.0.0.1:port", "eldr_a_1", "is no address of a control plane"),
        ("http://a\nb", "eldr_a_1", "is no address of a control plane"),
        ("ftp://127.0.0.1", "eldr_a_1", "no answer from ftp://127.0.0.1"),
        (NOBODY, "eldr_a_ü", "the API key has a character that no key has"),
    ],
)
def test_an_address_or_a_key_that_can_be_none_is_named(
    eldr, monkeypatch: pytest.MonkeyPatch, address: str, key: str, said: str
) -> None:
    monkeypatch.setenv("ELDR_API_KEY", key)
    ended = eldr("tau", "show", "--control-plane", address, "--fleet", "demo")
    assert (ended.status, ended.out) == (2, "")
    assert said in ended.err
    assert "eldr_a_" not in ended.err


@pytest.mark.parametrize("number", ["nan", "inf"])
@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (("tau", "set"), "TAU"),
        (("tau", "set", "0.1", "--load-cap"), "--load-cap"),
        (("tau", "set", "0.1", "--revert-after"), "--revert-after"),
        (("keys", "create", "k", "--role", "viewer", "--expires-in"), "--expires-in"),
        (("alerts", "silence", "a", "--seconds"), "--seconds"),
        (("drift", "list", "--hours"), "--hours"),
        (("drift", "inject", "--share"), "--share"),
        (("load", "--router", NOBODY, "--for"), "--for"),
        (("fleet", "--drain-seconds"), "--drain-seconds"),
        (("up", "--for"), "--for"),
    ],
)
def test_no_option_takes_what_is_no_finite_number(
    eldr, arguments: tuple[str, ...], option: str, number: str
) -> None:
    ended = eldr(*arguments, number)
    assert (ended.status, ended.out) == (2, "")
    assert f"Invalid value for '{option}'" in ended.err
