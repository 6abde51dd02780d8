"""The timer of the background work. All work is rows; APScheduler only says when to look at them."""

import logging
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from apscheduler.schedulers.background import BackgroundScheduler  # type: ignore[import-untyped]

from controlplane.errors import ControlPlaneError
from controlplane.jobs.calibration_processes import CalibrationProcesses, start_process
from controlplane.jobs.lease import (
    LEASE_SECONDS,
    FencedDatabase,
    Lease,
    LeaseLost,
    give_up_lease,
    name_holder,
    take_lease,
)
from controlplane.jobs.ticks import Task, Tick, all_tasks
from controlplane.settings import Settings
from controlplane.storage.database import Database

logger = logging.getLogger(__name__)

TICK_SECONDS = 1.0


class BackgroundJobs:
    """The background work of one control plane, of which one holder of the lease does it."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        clock: Callable[[], datetime],
        *,
        tasks: tuple[Task, ...] | None = None,
        processes: CalibrationProcesses | None = None,
    ) -> None:
        self.holder = name_holder()
        self._database = database
        self._settings = settings
        self._clock = clock
        self._tasks = all_tasks(settings) if tasks is None else tasks
        self._processes = processes or CalibrationProcesses(start=start_process(settings, os.environ))
        self._due_at = dict.fromkeys((task.name for task in self._tasks), float("-inf"))
        self._lease: Lease | None = None
        self._renew_at = float("-inf")
        self._scheduler = BackgroundScheduler(timezone=UTC)

    def start(self) -> None:
        """Tick each second from now on, in a thread; a tick that takes longer delays the next."""
        logging.getLogger("apscheduler").setLevel(logging.ERROR)  # it warns of each tick it delays
        self._scheduler.add_job(
            self.tick,
            "interval",
            seconds=TICK_SECONDS,
            next_run_time=datetime.now(UTC) + timedelta(seconds=TICK_SECONDS),
            max_instances=1,
            coalesce=True,
            misfire_grace_time=None,
        )
        self._scheduler.start()

    def stop(self) -> None:
        """Wait for the tick that runs, end the processes, give the lease up."""
        self._scheduler.shutdown(wait=True)
        self._processes.stop()
        try:
            give_up_lease(self._database, self.holder)
        except ControlPlaneError as error:
            logger.warning("the lease runs out by itself: %s", error)

    def tick(self) -> None:
        """Do what is due, if this process has the lease or can take it."""
        try:
            lease = self._hold_lease()
        except ControlPlaneError as error:
            logger.warning("no tick: %s", error)
            return
        if lease is None:
            return
        for task in self._tasks:
            if time.monotonic() < self._due_at[task.name]:
                continue
            self._due_at[task.name] = time.monotonic() + task.period_seconds - TICK_SECONDS / 2
            if not self._run(task, lease):
                return

    def _hold_lease(self) -> Lease | None:
        """Take the lease, or renew it once a third of its life has passed."""
        if self._lease is not None and time.monotonic() < self._renew_at:
            return self._lease
        began = time.monotonic()
        self._lease = take_lease(self._database, self.holder)
        self._renew_at = began + LEASE_SECONDS / 3
        return self._lease

    def _run(self, task: Task, lease: Lease) -> bool:
        """Run a task; return whether the others may go on."""
        tick = Tick(
            fenced=FencedDatabase(database=self._database, lease=lease),
            settings=self._settings,
            processes=self._processes,
            now=self._clock(),
        )
        try:
            task.run(tick)
        except LeaseLost as error:
            logger.warning("task %s stops: %s", task.name, error)
            self._lease = None
            return False
        except ControlPlaneError as error:
            logger.warning("task %s is put off: %s", task.name, error)
        except Exception:  # the edge of the thread: logged, and the other tasks go on
            logger.exception("task %s failed unexpectedly", task.name)
        return True
