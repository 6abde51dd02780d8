import json
from enum import StrEnum
from pathlib import Path

import pytest

from eldr_runtime.cli import console


class _Stage(StrEnum):
    HELD_OUT = "held_out"


def test_json_is_alone_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    console.say("a note")
    console.print_json({"rho": 0.5})
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"rho": 0.5}
    assert printed.err == "a note\n"


def test_a_number_that_is_not_finite_is_no_json() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        console.print_json({"rho": float("nan")})


def test_square_brackets_are_text_and_not_markup(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_table("T", ["name", "n"], [["[bold]x", "1"]])
    console.print_facts("F", [("[red]", "[i]")])
    printed = capsys.readouterr().out
    assert "[bold]x" in printed
    assert "[red]" in printed


def test_progress_is_silent_where_stderr_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with console.stage_progress() as on_stage:
        on_stage(_Stage.HELD_OUT, 0.5)
    assert capsys.readouterr() == ("", "")


def test_file_replaces_the_old_one_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_bytes(b"old")
    console.write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_failed_write_keeps_the_old_file_and_leaves_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.txt"
    path.write_bytes(b"old")

    def interrupt(source: str, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        console.write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
