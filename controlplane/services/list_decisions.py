"""Why requests went where they did, from sampled decisions."""

import json

from controlplane.domain.pages import Page
from controlplane.domain.telemetry import SampledDecision
from controlplane.errors import NotFound
from controlplane.services.manage_fleets import get_fleet
from controlplane.storage.database import ReadSession
from controlplane.storage.repositories import samples
from controlplane.storage.repositories.samples import SampleFilter
from eldr_runtime.json_values import from_json_value


def list_decisions(
    session: ReadSession, fleet: str, wanted: SampleFilter, cursor: str | None, limit: int
) -> Page[SampledDecision]:
    """List decisions, newest first."""
    get_fleet(session, fleet)
    found = samples.read_decisions(session, fleet, wanted, before_id=cursor, limit=limit + 1)
    next_cursor = found[limit - 1][0] if len(found) > limit else None
    return Page(items=tuple(_read(text) for _, text in found[:limit]), next_cursor=next_cursor)


def get_decision(session: ReadSession, fleet: str, request_id: str) -> SampledDecision:
    """Find the decision on one request, or refuse."""
    get_fleet(session, fleet)
    text = samples.find_decision(session, fleet, request_id)
    if text is None:
        raise NotFound(resource="sampled decision", name=request_id)
    return _read(text)


def _read(text: str) -> SampledDecision:
    return from_json_value(SampledDecision, json.loads(text))
