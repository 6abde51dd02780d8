"""The data folder of `eldr up`: keys, logs, and `run.json`, which tells other commands where things are."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from eldr_runtime.cli.console import write_atomically
from eldr_runtime.errors import InvalidMessage, UnreadableFile
from eldr_runtime.json_values import from_json_value, to_json_value

DEFAULT_FOLDER = Path("eldr-data")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Secrets of the keys that `eldr up` made on its first start; the file is readable by its owner alone."""

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
    def router_data(self) -> Path:
        """Folder of the router's last good configuration."""
        return self.path / "router"

    def log_file(self, name: str) -> Path:
        """Return the file that a process's output goes to."""
        return self.path / "logs" / f"{name}.log"

    def make(self) -> None:
        """Make the folder and what is in it."""
        for folder in (self.path, self.router_data, self.path / "logs"):
            folder.mkdir(parents=True, exist_ok=True)

    def read_keys(self) -> Keys | None:
        """Return the stored secrets, or None on the first start."""
        file = self.path / "keys.json"
        return _read(Keys, file) if file.exists() else None

    def write_keys(self, keys: Keys) -> None:
        """Store the secrets for the owner alone."""
        file = self.path / "keys.json"
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            json.dump(to_json_value(keys), stream, indent=2)

    def read_run(self) -> Run:
        """Return where the running processes are; raise `UnreadableFile` if none run from this folder."""
        file = self.path / "run.json"
        if not file.exists():
            raise UnreadableFile(f"{file} is not there: no `eldr up` runs with --data {self.path}")
        return _read(Run, file)

    def write_run(self, run: Run) -> None:
        """Say where the running processes are."""
        write_atomically(self.path / "run.json", json.dumps(to_json_value(run), indent=2).encode() + b"\n")

    def remove_run(self) -> None:
        """Say that nothing runs any more."""
        (self.path / "run.json").unlink(missing_ok=True)


def _read(kind: type[Value], file: Path) -> Value:
    try:
        return from_json_value(kind, json.loads(file.read_text()))
    except (ValueError, InvalidMessage) as error:
        raise UnreadableFile(f"{file}: {error}") from error
