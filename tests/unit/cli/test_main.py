import click
import pytest

from eldr_runtime.cli import main
from eldr_runtime.errors import InvalidTrace, UnreadableFile


def _run_raising(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> int:
    @click.command()
    def fail() -> None:
        raise error

    monkeypatch.setitem(main.cli.commands, "fail", fail)
    return main.run(["fail"])


def test_a_refused_value_is_one_line_and_status_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = InvalidTrace(field="top_k", value=0, limit="at least 1")
    assert _run_raising(error, monkeypatch) == 2
    assert capsys.readouterr() == ("", "eldr: top_k is 0; must be at least 1\n")


def test_a_message_of_several_lines_is_still_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run_raising(UnreadableFile("cut\nshort"), monkeypatch) == 2
    assert capsys.readouterr().err == "eldr: cut short\n"


def test_a_file_that_cannot_be_written_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run_raising(FileNotFoundError(2, "No such file or directory", "x"), monkeypatch) == 2
    assert capsys.readouterr().err == "eldr: [Errno 2] No such file or directory: 'x'\n"


def test_an_interrupt_ends_with_status_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run_raising(KeyboardInterrupt(), monkeypatch) == 130
    assert capsys.readouterr().err.endswith("interrupted\n")


def test_a_fault_of_ours_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ZeroDivisionError):
        _run_raising(ZeroDivisionError(), monkeypatch)


@pytest.mark.parametrize("arguments", [["no-such-command"], ["--no-such-option"]])
def test_bad_usage_is_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(arguments) == 2
    assert capsys.readouterr().err


def test_help_is_status_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--help"]) == 0
    assert "Usage: eldr" in capsys.readouterr().out
