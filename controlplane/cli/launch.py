"""Child processes of `eldr up`: started by module name, awaited by health, ended together."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import click
import httpx

ENTRY_MODULE = "controlplane.cli.main"
POLL_SECONDS = 0.1
HEALTH_TIMEOUT_SECONDS = 2.0
LOG_TAIL_LINES = 15
END_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(slots=True, kw_only=True)
class Child:
    """One running process and where its output goes."""

    name: str
    process: subprocess.Popen[bytes]
    log_file: Path
    stop_seconds: float


@dataclass(slots=True, kw_only=True)
class Children:
    """The processes of one run, in the order they were started; they end in the opposite order.

    `program` is what all their command lines begin with.
    """

    program: tuple[str, ...] = (sys.executable, "-m", ENTRY_MODULE)
    running: list[Child] = field(default_factory=list)

    def start(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        log_file: Path,
        environment: Mapping[str, str] | None = None,
        stop_seconds: float = 15.0,
    ) -> None:
        """Start the program in a process group of its own, so that Ctrl-C reaches only the parent."""
        with signals_held(), log_file.open("ab") as log:
            process = subprocess.Popen(
                [*self.program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
            child = Child(name=name, process=process, log_file=log_file, stop_seconds=stop_seconds)
            self.running.append(child)

    def pids(self) -> dict[str, int]:
        """Return the process id of each child."""
        return {child.name: child.process.pid for child in self.running}

    def check(self) -> None:
        """Raise with the end of its log if a process has ended by itself."""
        for child in self.running:
            status = child.process.poll()
            if status is not None:
                raise click.ClickException(
                    f"{child.name} ended with status {status}; the end of {child.log_file}:\n{_tail(child)}"
                )

    def wait_for(self, what: str, is_ready: Callable[[], bool], timeout_seconds: float) -> None:
        """Wait until something is so; give up at the time-out, or when a process ends by itself."""
        deadline = time.monotonic() + timeout_seconds
        self.check()
        while not is_ready():
            self.check()
            if time.monotonic() > deadline:
                raise click.ClickException(f"{what} took more than {timeout_seconds:g} s")
            time.sleep(POLL_SECONDS)

    def stop(self) -> None:
        """End all processes, the last started first, each after it has finished what it was doing.

        A second Ctrl-C meanwhile ends at once those that are left.
        """
        try:
            while self.running:
                child = self.running[-1]
                child.process.terminate()
                try:
                    child.process.wait(child.stop_seconds)
                except subprocess.TimeoutExpired:
                    child.process.kill()
                    child.process.wait()
                self.running.pop()
        finally:
            self.kill()

    def kill(self) -> None:
        """End all processes at once."""
        with signals_held():
            for child in self.running:
                child.process.kill()
            while self.running:
                self.running.pop().process.wait()


@contextmanager
def signals_held() -> Iterator[None]:
    """Let SIGINT and SIGTERM wait for the end of the block: no process is started and then forgotten."""
    held: list[int] = []

    def hold(number: int, frame: FrameType | None) -> None:
        held.append(number)

    before = [(number, signal.signal(number, hold)) for number in END_SIGNALS]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
    for each in held:
        signal.raise_signal(each)


def answers(url: str) -> bool:
    """Whether a health address answers with success."""
    try:
        return httpx.get(url, timeout=HEALTH_TIMEOUT_SECONDS, trust_env=False).is_success
    except httpx.TransportError:
        return False


def take_port(wanted: int, option: str) -> int:
    """Return the wanted TCP port if nothing listens there, or for 0 a free one; `option` is what sets it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError as error:
            raise click.UsageError(
                f"port {wanted} is in use; give another with {option}, 0 for any"
            ) from error
        port: int = probe.getsockname()[1]
        return port


def _tail(child: Child) -> str:
    lines = child.log_file.read_text(errors="replace").splitlines()
    return "\n".join(lines[-LOG_TAIL_LINES:])
