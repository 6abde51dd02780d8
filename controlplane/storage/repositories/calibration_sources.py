"""What calibration runs were fitted on."""

from collections.abc import Iterable

from sqlalchemy import select

from controlplane.storage.database import ReadSession
from controlplane.storage.models.calibrations import CalibrationRunRow


def pack_ids_of(session: ReadSession, run_ids: Iterable[str | None]) -> set[str]:
    """Collect the trace packs that runs were fitted on."""
    wanted = [run_id for run_id in run_ids if run_id is not None]
    statement = select(CalibrationRunRow.trace_pack_id).where(CalibrationRunRow.id.in_(wanted))
    return {pack_id for pack_id in session.scalars(statement) if pack_id is not None}
