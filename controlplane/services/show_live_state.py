"""Answer what was live at a moment."""

from datetime import datetime

from controlplane.domain.pages import Page, to_page
from controlplane.domain.versions import Activation, LiveState
from controlplane.errors import InvalidField
from controlplane.services.manage_fleets import get_fleet
from controlplane.storage.database import ReadSession
from controlplane.storage.repositories import activations, fleets, settings_revisions


def show_live_state(session: ReadSession, fleet: str, at: datetime) -> LiveState:
    """Find the generation, the activation and the settings that were live at a moment."""
    created_at = get_fleet(session, fleet).created_at
    generation = fleets.generation_at(session, fleet, at)
    settings = settings_revisions.revision_at(session, fleet, at)
    if generation is None or settings is None:
        limit = f"not before the fleet was made, {created_at.isoformat()}"
        raise InvalidField(field="at", value=at.isoformat(), limit=limit)
    return LiveState(
        at=at,
        generation=generation,
        activation=activations.activation_at(session, fleet, at),
        settings=settings_revisions.to_settings(settings),
    )


def list_activations(session: ReadSession, fleet: str, cursor: str | None, limit: int) -> Page[Activation]:
    """List activations, newest first."""
    get_fleet(session, fleet)
    found = activations.list_activations(session, fleet, before_id=cursor, limit=limit + 1)
    return to_page(found, limit, lambda activation: activation.id)
