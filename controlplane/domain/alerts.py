"""Alerts, audit events and API keys, as the API speaks of them."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import ClassVar


class AlertState(StrEnum):
    """`pending -> firing -> resolved`; `NO_DATA` is a state of its own."""

    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"
    NO_DATA = "no_data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert, identified by the fingerprint of its rule and subject."""

    id: str
    fleet: str
    rule: str
    subject: str
    fingerprint: str
    severity: str
    state: AlertState
    summary: str
    value: float | None
    threshold: float | None
    n: int | None
    runbook: str
    started_at: datetime
    fired_at: datetime | None
    resolved_at: datetime | None
    acknowledged_at: datetime | None
    acknowledged_by: str | None
    silenced_until: datetime | None
    silenced_by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledge:
    """Command: somebody looks after this alert."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """Command: keep an alert quiet for a time."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    reason: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """One change: before and after as JSON text, in the same transaction as the change."""

    id: int
    at: datetime
    fleet: str | None
    actor: str
    action: str
    resource: str
    resource_id: str
    reason: str
    request_id: str
    before: str | None
    after: str | None


class Role(StrEnum):
    """What a key may do: read; operate; administer; or, for routers and workers, report."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"
    SERVICE = "service"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key as listed; its secret is shown once, when it is made."""

    id: str
    name: str
    role: Role
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewApiKey:
    """A key just made, with its secret."""

    key: ApiKey
    secret: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateApiKey:
    """Command: make a key."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    name: str
    role: Role
    reason: str
    expires_in_seconds: float | None = None
