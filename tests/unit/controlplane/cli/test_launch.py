"""Child processes: real ones, that do little."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from controlplane.cli.launch import Children, answers, signals_held, take_port

ENDS_WHEN_TOLD = "import time; print('up', flush=True); time.sleep(60)"
IS_STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + ENDS_WHEN_TOLD
REPORTS = (
    "import os, sys, time; "
    "print('up', sys.argv[1], os.environ['SAID'], os.getpgrp(), flush=True); time.sleep(60)"
)
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def children() -> Iterator[Children]:
    children = Children(program=(sys.executable, "-c"))
    yield children
    children.kill()


@pytest.fixture
def start(children: Children, tmp_path: Path) -> Start:
    """Start a child and wait until it says so."""

    def start_one(
        name: str, program: str, *arguments: str, stop_seconds: float = 20.0
    ) -> subprocess.Popen[bytes]:
        log_file = tmp_path / f"{name}.log"
        environment = {"SAID": name}
        children.start(
            name, [program, *arguments], log_file=log_file, environment=environment, stop_seconds=stop_seconds
        )
        process = children.running[-1].process
        if "print('up'" in program:
            children.wait_for(name, lambda: "up" in log_file.read_text(), 20)
        return process

    return start_one


def test_children_get_their_arguments_and_environment_and_no_terminal_signals(
    children: Children, start: Start
) -> None:
    process = start("one", REPORTS, "argument")
    said = children.running[0].log_file.read_text().split()
    assert said == ["up", "argument", "one", str(process.pid)]
    assert process.pid != os.getpgrp()
    assert children.pids() == {"one": process.pid}


def test_a_child_that_ends_by_itself_is_reported_with_the_end_of_its_log(
    children: Children, start: Start
) -> None:
    start("router", "print(*range(40), sep='\\n'); raise SystemExit(3)").wait()
    with pytest.raises(click.ClickException) as ended:
        children.check()
    message = ended.value.format_message()
    assert message.startswith("router ended with status 3; the end of ")
    assert message.splitlines()[1:] == [str(number) for number in range(25, 40)]
    assert ended.value.exit_code == 1


def test_waiting_ends_with_the_child_and_at_the_time_out(children: Children, start: Start) -> None:
    start("fleet", ENDS_WHEN_TOLD)
    with pytest.raises(click.ClickException, match=r"the fleet took more than 0\.2 s"):
        children.wait_for("the fleet", lambda: False, 0.2)
    start("router", "raise SystemExit(1)").wait()
    with pytest.raises(click.ClickException, match="router ended with status 1"):
        children.wait_for("the router", lambda: True, 20)


def test_children_end_in_the_opposite_order_and_stubborn_ones_are_killed(
    children: Children, start: Start
) -> None:
    stubborn = start("first", IS_STUBBORN, stop_seconds=0.2)
    willing = start("second", ENDS_WHEN_TOLD)
    ended: list[str] = []
    threads = [
        threading.Thread(target=lambda name=name, process=process: (process.wait(), ended.append(name)))
        for name, process in (("first", stubborn), ("second", willing))
    ]
    for thread in threads:
        thread.start()
    children.stop()
    for thread in threads:
        thread.join()
    assert ended == ["second", "first"]
    assert (stubborn.returncode, willing.returncode) == (-signal.SIGKILL, -signal.SIGTERM)
    assert children.running == []


def test_a_second_interrupt_ends_all_at_once(children: Children, start: Start) -> None:
    processes = [start(name, IS_STUBBORN, stop_seconds=60.0) for name in ("one", "two")]
    begin = time.monotonic()
    threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        children.stop()
    assert time.monotonic() - begin < 30
    assert [process.returncode for process in processes] == [-signal.SIGKILL] * 2


def test_an_interrupt_waits_until_the_block_is_done() -> None:
    done: list[bool] = []
    with pytest.raises(KeyboardInterrupt), signals_held():  # noqa: PT012  when it comes is what is tested
        signal.raise_signal(signal.SIGINT)
        done.append(True)
    assert done == [True]
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_ports_are_free_ones_or_the_wanted_one() -> None:
    port = take_port(0, "--any")
    assert take_port(port, "--any") == port
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        taken = listener.getsockname()[1]
        with pytest.raises(click.UsageError, match=f"port {taken} is in use; give another with --load-port"):
            take_port(taken, "--load-port")
        assert not answers(f"http://127.0.0.1:{port}/livez")
