"""List what was changed, by whom and why."""

from controlplane.domain.alerts import AuditEvent
from controlplane.domain.pages import Page, to_page
from controlplane.errors import InvalidField
from controlplane.storage.database import ReadSession
from controlplane.storage.repositories import audit
from controlplane.storage.repositories.audit import AuditFilter


def list_audit(session: ReadSession, wanted: AuditFilter, cursor: str | None, limit: int) -> Page[AuditEvent]:
    """List audit events, newest first."""
    if cursor is not None and not (cursor.isascii() and cursor.isdigit()):
        raise InvalidField(field="cursor", value=cursor, limit="the next_cursor of a page")
    before_id = None if cursor is None else int(cursor)
    found = audit.list_events(session, wanted, before_id=before_id, limit=limit + 1)
    return to_page(found, limit, lambda event: str(event.id))
