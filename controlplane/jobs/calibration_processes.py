"""Processes that carry out calibrations: started for queued runs, watched, ended with the control plane."""

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Protocol

from controlplane.jobs.lease import FencedDatabase
from controlplane.services.calibrate import claim_run, release_run
from controlplane.settings import PREFIX, Settings, variable_name
from controlplane.storage.repositories import calibration_runs

logger = logging.getLogger(__name__)

ACTOR = "system:calibration"
MOST_PROCESSES = 1
# A run that gives no sign of life for so long has lost its process, on whatever machine that was; one of this
# control plane is seen to end at once. On a busy machine a process takes half a minute to its first sign.
SILENT_SECONDS = 120.0
STOP_SECONDS = 5.0
# One thread each, so that a fit takes one core from live routing and no more.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Process(Protocol):
    """What is needed of a process."""

    def poll(self) -> int | None:
        """Exit status, None while it runs."""

    def terminate(self) -> None:
        """Ask it to end."""

    def kill(self) -> None:
        """End it."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""


Start = Callable[[str, int], Process]


def start_process(settings: Settings, environment: Mapping[str, str]) -> Start:
    """Build the function that starts the process of a run, with the same settings as this one's."""
    kept = {name: value for name, value in environment.items() if not name.startswith(PREFIX)}
    ours = {variable_name(item): str(getattr(settings, item.name)) for item in fields(settings)}

    def start(run_id: str, epoch: int) -> Process:
        command = [sys.executable, "-m", "controlplane.jobs.run_job", run_id, str(epoch)]
        return subprocess.Popen(command, env={**kept, **ours, **ONE_THREAD}, stdin=subprocess.DEVNULL)

    return start


@dataclass(slots=True)
class CalibrationProcesses:
    """The processes of this control plane, by run."""

    start: Start
    running: dict[tuple[str, int], Process] = field(default_factory=dict)

    def tick(self, fenced: FencedDatabase, now: datetime) -> None:
        """Look after ended processes and silent runs, then start what is queued."""
        for (run_id, epoch), status in self._take_ended().items():
            with fenced.change(ACTOR, now) as change:
                release_run(change, run_id, epoch, f"its process ended with status {status}")
        self._release_silent(fenced, now)
        while len(self.running) < MOST_PROCESSES:
            with fenced.change(ACTOR, now) as change:
                claimed = claim_run(change)
            if claimed is None:
                return
            self.running[claimed] = self.start(*claimed)

    def stop(self) -> None:
        """End all processes; their runs are put back by whoever next finds them silent."""
        for process in self.running.values():
            process.terminate()
        for (run_id, _), process in self.running.items():
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                logger.warning("the process of calibration run %s is killed", run_id)
                process.kill()
                process.wait()
        self.running.clear()

    def _take_ended(self) -> dict[tuple[str, int], int]:
        ended = {
            key: status for key, process in self.running.items() if (status := process.poll()) is not None
        }
        for key in ended:
            del self.running[key]
        return ended

    def _release_silent(self, fenced: FencedDatabase, now: datetime) -> None:
        before = now - timedelta(seconds=SILENT_SECONDS)
        with fenced.database.read() as session:
            silent = [(row.id, row.epoch) for row in calibration_runs.list_silent(session, before)]
        for run_id, epoch in silent:
            process = self.running.pop((run_id, epoch), None)
            if process is not None:
                process.kill()
                process.wait()
            with fenced.change(ACTOR, now) as change:
                release_run(
                    change, run_id, epoch, f"no sign of life of its process for {SILENT_SECONDS:.0f} s"
                )


def current_environment() -> Mapping[str, str]:
    """Environment of this process."""
    return os.environ
