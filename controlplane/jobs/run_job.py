"""`python -m controlplane.jobs.run_job RUN_ID EPOCH`: carries out one claimed calibration in this process."""

import logging
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from controlplane.errors import ControlPlaneError, NotReady
from controlplane.services.run_calibration import ClaimedRun, Progress, Superseded, fail_run, run_calibration
from controlplane.settings import Settings
from controlplane.storage.database import Database
from eldr_runtime.errors import Cancelled

logger = logging.getLogger(__name__)

NICENESS = 10
BEAT_SECONDS = 2.0
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the calibration; the exit status is 0 where its end is in the row, however it ended."""
    if len(arguments) != 2 or not arguments[1].isdigit():
        logger.error("usage: python -m controlplane.jobs.run_job RUN_ID EPOCH")
        return 2
    settings = Settings.from_environment(environment)
    os.nice(NICENESS)  # live routing on the same machine comes first
    claimed = ClaimedRun(run_id=arguments[0], epoch=int(arguments[1]))
    database = Database(settings.database_url)
    try:
        return _run(database, claimed, settings)
    finally:
        database.close()


def _run(database: Database, claimed: ClaimedRun, settings: Settings) -> int:
    ended = threading.Event()
    beats = threading.Thread(target=_beat, args=(Progress(database, claimed, utc_now), ended), daemon=True)
    beats.start()
    try:
        run_calibration(database, claimed, settings, utc_now)
    except Superseded as error:
        logger.warning("nothing is written: %s", error)
    except Exception as error:  # the edge of the process: logged, and told in the row
        logger.exception("calibration run %s failed unexpectedly", claimed.run_id)
        fail_run(database, claimed, utc_now(), f"unexpected {type(error).__name__}: {error}"[:1000])
    finally:
        ended.set()
        beats.join()
    return 0


def _beat(progress: Progress, ended: threading.Event) -> None:
    """Give signs of life, also while a stage takes long; that it shall stop the work finds out itself."""
    while not ended.wait(BEAT_SECONDS):
        try:
            progress.beat()
        except NotReady as error:
            logger.warning("no sign of life: %s", error)
        except (Cancelled, ControlPlaneError):
            return


def utc_now() -> datetime:
    """Time of the server."""
    return datetime.now(UTC)


if __name__ == "__main__":
    logging.basicConfig(format=LOG_FORMAT, level=logging.INFO)
    sys.exit(main(sys.argv[1:], os.environ))
