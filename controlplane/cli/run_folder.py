"""The data folder of `eldr up`: keys, logs, and `run.json`, which tells other commands where things are."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from controlplane.errors import ControlPlaneError
from eldr_runtime.cli.console import write_atomically
from eldr_runtime.errors import InvalidMessage, UnreadableFile
from eldr_runtime.json_values import from_json_value, parse_json, to_json_value

DEFAULT_FOLDER = Path("eldr-data")
Value = TypeVar("Value")


class FolderInUse(ControlPlaneError):
    """The data folder belongs to processes that still run."""


class FolderOfOtherModel(ControlPlaneError):
    """The data folder has the fleet of another model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Secrets of the keys that `eldr up` made on its first start."""

    admin: str
    operator: str
    service: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Where the processes of one `eldr up` listen."""

    fleet: str
    control_plane_url: str
    router_url: str
    dashboard_url: str | None
    fleet_control_url: str | None
    load_control_url: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Processes:
    """The processes of one `eldr up`, from the first that it starts on."""

    pids: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFolder:
    """One data folder; nothing of `eldr up` lies outside it."""

    path: Path

    @property
    def database_url(self) -> str:
        """SQLAlchemy URL of the embedded database."""
        return f"sqlite:///{self.path.resolve() / 'eldr.db'}"

    @property
    def keys_file(self) -> Path:
        """File with the secrets of the keys."""
        return self.path / "keys.json"

    @property
    def router_data(self) -> Path:
        """Folder of the router's last good configuration."""
        return self.path / "router"

    def log_file(self, name: str) -> Path:
        """Return the file that a process's output goes to."""
        return self.path / "logs" / f"{name}.log"

    def make(self) -> None:
        """Make the folder and what is in it; a new one is its owner's alone."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        for folder in (self.router_data, self.path / "logs"):
            folder.mkdir(exist_ok=True)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Hold the folder for one `eldr up` while the block runs; raise `FolderInUse` if another has it."""
        with (self.path / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise FolderInUse(f"another `eldr up` runs with --data {self.path}") from error
            self._refuse_left_over()
            yield

    def read_keys(self) -> Keys:
        """Return the stored secrets; raise `UnreadableFile` if there are none."""
        if not self.keys_file.exists():
            raise UnreadableFile(f"{self.keys_file} is not there, and the database holds only hashes of keys")
        return _read(Keys, self.keys_file)

    def write_keys(self, keys: Keys) -> None:
        """Store the secrets for the owner alone."""
        unfinished = self.path / ".keys.json"
        unfinished.unlink(missing_ok=True)
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(_document(keys))
        unfinished.replace(self.keys_file)

    def read_run(self) -> Run:
        """Return where the running processes are; raise `UnreadableFile` if none run from this folder."""
        file = self.path / "run.json"
        if not file.exists():
            raise UnreadableFile(f"{file} is not there: no `eldr up` runs with --data {self.path}")
        return _read(Run, file)

    def write_run(self, run: Run) -> None:
        """Say where the running processes are."""
        write_atomically(self.path / "run.json", _document(run))

    def read_processes(self) -> Processes:
        """Return the processes that the last `eldr up` started, if it did not end them."""
        file = self._processes_file
        return _read(Processes, file) if file.exists() else Processes(pids={})

    def write_processes(self, processes: Processes) -> None:
        """Note what was started, so that it is found if this process is killed."""
        write_atomically(self._processes_file, _document(processes))

    def remove_run(self) -> None:
        """Say that nothing runs any more."""
        for file in (self.path / "run.json", self._processes_file):
            file.unlink(missing_ok=True)

    @property
    def _processes_file(self) -> Path:
        return self.path / "processes.json"

    def _refuse_left_over(self) -> None:
        """Refuse while processes of a run that was killed are still there: they would write here too."""
        left = {name: pid for name, pid in self.read_processes().pids.items() if _is_ours(pid)}
        if left:
            named = ", ".join(f"{name} {pid}" for name, pid in left.items())
            raise FolderInUse(f"processes of a run that was killed still use {self.path}; end them: {named}")


def _is_ours(pid: int) -> bool:
    """Whether the process is one that `eldr up` started; process ids are given again to others."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"controlplane.cli.main" in command or b"streamlit" in command


def _document(value: object) -> bytes:
    return json.dumps(to_json_value(value), indent=2).encode() + b"\n"


def _read(kind: type[Value], file: Path) -> Value:
    try:
        return from_json_value(kind, parse_json(file.read_bytes()))
    except InvalidMessage as error:
        raise UnreadableFile(f"{file}: {error}") from error
