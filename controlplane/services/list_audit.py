"""List what was changed, by whom and why."""

from controlplane.domain.alerts import AuditEvent
from controlplane.domain.pages import Page, to_page
from controlplane.services.keep_version import number_of
from controlplane.storage.database import ReadSession
from controlplane.storage.repositories import audit
from controlplane.storage.repositories.audit import AuditFilter


def list_audit(session: ReadSession, wanted: AuditFilter, cursor: str | None, limit: int) -> Page[AuditEvent]:
    """List audit events, newest first."""
    found = audit.list_events(session, wanted, before_id=number_of(cursor), limit=limit + 1)
    return to_page(found, limit, lambda event: str(event.id))
