"""`/v1/audit`."""

from fastapi import APIRouter

from controlplane.api.parameters import Cursor, Limit, Moment
from controlplane.api.security import ViewerCall
from controlplane.domain.alerts import AuditEvent
from controlplane.domain.pages import Page
from controlplane.services.list_audit import list_audit
from controlplane.storage.repositories.audit import AuditFilter

router = APIRouter(prefix="/v1/audit", tags=["audit"])


@router.get("")
def list_events(
    call: ViewerCall,
    fleet: str | None = None,
    since: Moment = None,
    until: Moment = None,
    resource: str | None = None,
    resource_id: str | None = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Page[AuditEvent]:
    """List changes, newest first."""
    wanted = AuditFilter(fleet=fleet, since=since, until=until, resource=resource, resource_id=resource_id)
    with call.read() as session:
        return list_audit(session, wanted, cursor, limit)
