"""`eldr up` as a process: how it starts, ends, starts again, and what it leaves behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from controlplane.cli.main import run
from controlplane.cli.run_folder import RunFolder

UP = (
    *(sys.executable, "-m", "controlplane.cli.main", "up", "--prefill", "1", "--decode", "2"),
    *("--no-dashboard", "--router-port", "0", "--controlplane-port", "0"),
)
START_SECONDS = 180.0
END_SECONDS = 60.0
IS_UP = "Ctrl-C ends everything"


@dataclass
class Up:
    """One `eldr up`; `mark` is in the environment of every process that stems from it."""

    process: subprocess.Popen[bytes]
    errors: Path
    mark: str

    def said(self) -> str:
        return self.errors.read_text()

    def wait_until(self, what: str, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not is_so():
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < deadline, f"{what}: {self.said()}"
            time.sleep(0.05)

    def wait_until_up(self) -> None:
        self.wait_until("start", lambda: IS_UP in self.said())

    def end(self, number: signal.Signals | None = None) -> int:
        if number is not None:
            self.process.send_signal(number)
        return self.process.wait(END_SECONDS)

    def left(self) -> list[str]:
        """Command lines of the processes that are still there."""
        mark = self.mark.encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (folder / "environ").read_bytes():
                    found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
        return found


@pytest.fixture
def start_up(tmp_path: Path) -> Iterator[Callable[[], Up]]:
    """Start `eldr up` with the data folder of this test."""
    started: list[Up] = []

    def start() -> Up:
        mark = f"STARTED_BY_TEST={uuid4().hex}"
        errors = tmp_path / f"errors-{len(started)}.txt"
        name, _, value = mark.partition("=")
        with errors.open("wb") as stream:
            process = subprocess.Popen(
                [*UP, "--data", str(tmp_path / "data")],
                stdout=subprocess.DEVNULL,
                stderr=stream,
                env={**os.environ, name: value},
                # Shells start jobs in the background deaf to it.
                preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
            )
        started.append(Up(process=process, errors=errors, mark=mark))
        return started[-1]

    yield start
    for up in started:
        if up.process.poll() is None:
            up.end(signal.SIGINT)


def test_it_ends_whole_starts_again_with_the_same_keys_and_names_what_died(
    start_up: Callable[[], Up], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunFolder(path=tmp_path / "data")

    first = start_up()
    first.wait_until_up()
    keys = folder.read_keys()
    assert first.said().count(keys.admin) == 1
    assert run(["tau", "show", "--data", str(folder.path)]) == 0
    assert run(["keys", "list", "--data", str(folder.path)]) == 0
    assert run(["drift", "inject", "--data", str(folder.path)]) == 2
    assert "drives no simulated load" in capsys.readouterr().err
    assert len(first.left()) == 4
    assert first.end(signal.SIGINT) == 130
    assert first.left() == []
    assert not (folder.path / "run.json").exists()

    second = start_up()
    second.wait_until_up()
    assert folder.read_keys() == keys
    for secret in (keys.admin, keys.operator, keys.service):
        assert secret not in second.said()
        for log_file in (folder.path / "logs").iterdir():
            assert secret not in log_file.read_text()
    third = start_up()
    assert third.end() == 2
    assert "another `eldr up` runs with --data" in third.said()
    assert len(second.left()) == 4

    os.kill(folder.read_processes().pids["router"], signal.SIGKILL)
    assert second.end() == 1
    assert "router ended with status -9; the end of" in second.said()
    assert "listens on http://" in second.said().rpartition("router.log:")[2]
    assert second.left() == []


def test_what_a_start_that_was_killed_has_started_is_named(
    start_up: Callable[[], Up], tmp_path: Path
) -> None:
    folder = RunFolder(path=tmp_path / "data")
    killed = start_up()
    killed.wait_until("first process", lambda: "controlplane" in folder.read_processes().pids)
    assert killed.end(signal.SIGKILL) == -signal.SIGKILL
    pid = folder.read_processes().pids["controlplane"]
    try:
        again = start_up()
        assert again.end() == 2
        assert f"end them: controlplane {pid}" in again.said()
    finally:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_it_starts_leaves_nothing(
    start_up: Callable[[], Up], tmp_path: Path, number: signal.Signals
) -> None:
    up = start_up()
    up.wait_until("first process", lambda: (tmp_path / "data" / "logs" / "controlplane.log").exists())
    assert up.end(number) == 130
    assert up.left() == []
