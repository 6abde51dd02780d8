"""One change by one actor: its transaction, its time, and the audit event that tells of it."""

import json
from dataclasses import dataclass
from datetime import datetime

from controlplane.domain.reasons import check_reason
from controlplane.storage.database import WriteSession
from controlplane.storage.models.access import AuditEventRow
from controlplane.storage.repositories import audit
from eldr_runtime.json_values import to_json_value

SYSTEM_ACTOR = "system"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What every changing use case is given: the session to write in, who asks, and when."""

    session: WriteSession
    actor: str
    request_id: str
    now: datetime

    def audit(
        self,
        *,
        action: str,
        resource: str,
        resource_id: str,
        reason: str,
        fleet: str | None = None,
        before: object | None = None,
        after: object | None = None,
    ) -> None:
        """Add the audit event of this change; `before` and `after` are the API's values of the resource."""
        event = AuditEventRow(
            at=self.now,
            fleet=fleet,
            actor=self.actor,
            action=action,
            resource=resource,
            resource_id=resource_id,
            reason=check_reason(reason),
            request_id=self.request_id,
            before=None if before is None else to_json_text(before),
            after=None if after is None else to_json_text(after),
        )
        audit.add_event(self.session, event)


def to_json_text(value: object) -> str:
    """JSON text of a value of the API, with sorted keys."""
    return json.dumps(to_json_value(value), sort_keys=True)
