"""API keys."""

from datetime import datetime

from sqlalchemy import ColumnElement, func, or_, select, text, update

from controlplane.domain.alerts import ApiKey, Role
from controlplane.storage.database import ReadSession, WriteSession
from controlplane.storage.models.access import ApiKeyRow


def find_key(session: ReadSession, key_id: str) -> ApiKeyRow | None:
    """Find a key by its id, revoked and expired ones too."""
    return session.get(ApiKeyRow, key_id)


def lock_keys(session: WriteSession) -> None:
    """Have other changes of keys wait until this transaction ends; SQLite has one writer anyway."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text(f"LOCK TABLE {ApiKeyRow.__tablename__} IN SHARE ROW EXCLUSIVE MODE"))


def add_key(session: WriteSession, row: ApiKeyRow) -> None:
    """Add a key."""
    session.add(row)


def has_usable_key(session: ReadSession, role: Role, now: datetime) -> bool:
    """Whether some key of a role is neither revoked nor expired."""
    statement = select(func.count()).where(ApiKeyRow.role == role, *_usable(now))
    return session.execute(statement).scalar_one() > 0


def has_usable_name(session: ReadSession, name: str, now: datetime) -> bool:
    """Whether a key of this name is neither revoked nor expired."""
    statement = select(func.count()).where(ApiKeyRow.name == name, *_usable(now))
    return session.execute(statement).scalar_one() > 0


def list_keys(session: ReadSession, *, before_id: str | None, limit: int) -> list[ApiKey]:
    """List keys, newest first."""
    statement = select(ApiKeyRow).order_by(ApiKeyRow.id.desc()).limit(limit)
    if before_id is not None:
        statement = statement.where(ApiKeyRow.id < before_id)
    return [to_key(row) for row in session.scalars(statement)]


def touch_key(session: WriteSession, key_id: str, now: datetime) -> None:
    """Note that a key was used."""
    session.execute(update(ApiKeyRow).where(ApiKeyRow.id == key_id).values(last_used_at=now))


def to_key(row: ApiKeyRow) -> ApiKey:
    """Value of a row, without the hash of its secret."""
    return ApiKey(
        id=row.id,
        name=row.name,
        role=Role(row.role),
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
        last_used_at=row.last_used_at,
    )


def _usable(now: datetime) -> tuple[ColumnElement[bool], ...]:
    return (ApiKeyRow.revoked_at.is_(None), or_(ApiKeyRow.expires_at.is_(None), ApiKeyRow.expires_at > now))
