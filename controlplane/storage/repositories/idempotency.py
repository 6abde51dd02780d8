"""Answers kept for idempotency keys."""

from datetime import datetime

from sqlalchemy import delete
from sqlalchemy.dialects import postgresql, sqlite

from controlplane.storage.database import WriteSession
from controlplane.storage.models.access import IdempotencyKeyRow


def claim_key(
    session: WriteSession, *, api_key_id: str, key: str, request_hash: str, now: datetime
) -> IdempotencyKeyRow | None:
    """Claim a key for this request, or return the row of the request that claimed it before.

    Of two requests at once the second waits here for the first one's transaction.
    """
    insert = sqlite.insert if session.get_bind().dialect.name == "sqlite" else postgresql.insert
    values = {
        "api_key_id": api_key_id,
        "key": key,
        "request_hash": request_hash,
        "status": 0,
        "headers": {},
        "body": b"",
        "created_at": now,
    }
    statement = insert(IdempotencyKeyRow).values(values).on_conflict_do_nothing()
    claimed = session.execute(statement.returning(IdempotencyKeyRow.key)).first()
    return None if claimed is not None else session.get_one(IdempotencyKeyRow, (api_key_id, key))


def keep_answer(
    session: WriteSession, *, api_key_id: str, key: str, status: int, headers: dict[str, str], body: bytes
) -> None:
    """Keep the answer under a key claimed in this transaction."""
    row = session.get_one(IdempotencyKeyRow, (api_key_id, key))
    row.status = status
    row.headers = headers
    row.body = body


def forget_answers(session: WriteSession, before: datetime) -> None:
    """Forget the answers given before a time."""
    session.execute(delete(IdempotencyKeyRow).where(IdempotencyKeyRow.created_at < before))
