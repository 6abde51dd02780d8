"""Make, check, list and revoke API keys."""

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

from controlplane.domain.alerts import ApiKey, CreateApiKey, NewApiKey, Role
from controlplane.domain.limits import check_between, check_length
from controlplane.domain.pages import Page, to_page
from controlplane.errors import Conflict, NotFound, Unauthenticated
from controlplane.services.record_change import SYSTEM_ACTOR, Change
from controlplane.storage.database import Database, ReadSession
from controlplane.storage.models.access import ApiKeyRow
from controlplane.storage.models.metadata import new_id
from controlplane.storage.repositories import keys

KEY_PREFIX = "eldr"
SECRET_BYTES = 32
TEN_YEARS_SECONDS = 10 * 365 * 86_400.0
# A use is noted at most this often, so that reading does not write each time.
TOUCH_SECONDS = 60.0
# Compared with where the id is unknown, so that the answer takes as long.
NO_HASH = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who asks: a key that was found good."""

    key_id: str
    name: str
    role: Role
    needs_touch: bool


def authenticate(session: ReadSession, token: str, now: datetime) -> Principal:
    """Find the key a bearer token stands for; raise `Unauthenticated` if it is of no use."""
    prefix, _, rest = token.partition("_")
    key_id, _, secret = rest.partition("_")
    if prefix != KEY_PREFIX or not key_id or not secret:
        raise Unauthenticated("the bearer token is not a key of the form eldr_ID_SECRET")
    row = keys.find_key(session, key_id)
    is_right = hmac.compare_digest(hash_secret(secret), NO_HASH if row is None else row.secret_hash)
    if row is None or not is_right:
        raise Unauthenticated("the key is not known")
    if row.revoked_at is not None:
        raise Unauthenticated(f"key {row.name!r} was revoked at {row.revoked_at.isoformat()}")
    if row.expires_at is not None and row.expires_at <= now:
        raise Unauthenticated(f"key {row.name!r} expired at {row.expires_at.isoformat()}")
    is_old = row.last_used_at is None or now - row.last_used_at > timedelta(seconds=TOUCH_SECONDS)
    return Principal(key_id=row.id, name=row.name, role=Role(row.role), needs_touch=is_old)


def note_use(database: Database, principal: Principal, now: datetime) -> None:
    """Note that a key was used, if the last note is old."""
    if principal.needs_touch:
        with database.write() as session:
            keys.touch_key(session, principal.key_id, now)


def make_key(change: Change, command: CreateApiKey) -> NewApiKey:
    """Make a key; its secret is in the answer and nowhere else."""
    check_length("name", command.name, 64)
    if command.expires_in_seconds is not None:
        check_between("expires_in_seconds", command.expires_in_seconds, 1, TEN_YEARS_SECONDS)
    keys.lock_keys(change.session)
    if keys.has_usable_name(change.session, command.name, change.now):
        raise Conflict(
            f"there is a usable key {command.name!r} already; audit events tell keys apart by name"
        )
    secret = secrets.token_hex(SECRET_BYTES)
    row = ApiKeyRow(
        id=new_id(),
        name=command.name,
        role=command.role,
        secret_hash=hash_secret(secret),
        created_at=change.now,
        expires_at=_after(change.now, command.expires_in_seconds),
    )
    keys.add_key(change.session, row)
    key = keys.to_key(row)
    change.audit(action="create", resource="key", resource_id=row.id, reason=command.reason, after=key)
    return NewApiKey(key=key, secret=f"{KEY_PREFIX}_{row.id}_{secret}")


def revoke_key(change: Change, key_id: str, reason: str) -> ApiKey:
    """Make a key useless from now on; the last usable admin key stays."""
    keys.lock_keys(change.session)
    row = keys.find_key(change.session, key_id)
    if row is None:
        raise NotFound(resource="key", name=key_id)
    if row.revoked_at is not None:
        raise Conflict(f"key {row.name!r} was revoked at {row.revoked_at.isoformat()}")
    before = keys.to_key(row)
    row.revoked_at = change.now
    change.session.flush()
    if row.role == Role.ADMIN and not keys.has_usable_key(change.session, Role.ADMIN, change.now):
        raise Conflict(f"key {row.name!r} is the last usable admin key; make another one first")
    after = keys.to_key(row)
    change.audit(
        action="revoke", resource="key", resource_id=key_id, reason=reason, before=before, after=after
    )
    return after


def list_keys(session: ReadSession, cursor: str | None, limit: int) -> Page[ApiKey]:
    """List keys, newest first."""
    found = keys.list_keys(session, before_id=cursor, limit=limit + 1)
    return to_page(found, limit, lambda key: key.id)


def bootstrap_admin_key(database: Database, now: datetime, name: str = "admin") -> NewApiKey | None:
    """Make the first admin key; None where a usable one exists, so that a restart makes no second one."""
    with database.write() as session:
        keys.lock_keys(session)
        if keys.has_usable_key(session, Role.ADMIN, now):
            return None
        change = Change(session=session, actor=SYSTEM_ACTOR, request_id="bootstrap", now=now)
        command = CreateApiKey(name=name, role=Role.ADMIN, reason="first start: no usable admin key")
        return make_key(change, command)


def hash_secret(secret: str) -> str:
    """Hash a secret for storing: 256 random bits need no slow hash."""
    return hashlib.sha256(secret.encode()).hexdigest()


def _after(now: datetime, seconds: float | None) -> datetime | None:
    return None if seconds is None else now + timedelta(seconds=seconds)
