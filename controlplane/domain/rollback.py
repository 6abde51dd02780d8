"""Which version a rollback goes back to."""

from collections.abc import Sequence
from itertools import pairwise

from controlplane.domain.versions import Activation, ActivationKind


def choose_rollback_target(history: Sequence[Activation]) -> str | None:
    """Choose the last version that was active before the present one and was not rolled back from.

    `history` is newest first, the present activation at its head. None where there is no such version.

    Examples
    --------
    After `1, 2, back to 1` a second rollback does not return to 2, which was left for a reason.
    """
    if not history:
        return None
    present = history[0].version_id
    left = {older.version_id for newer, older in pairwise(history) if newer.kind is ActivationKind.ROLL_BACK}
    for activation in history[1:]:
        if activation.version_id != present and activation.version_id not in left:
            return activation.version_id
    return None
