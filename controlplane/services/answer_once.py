"""The same Idempotency-Key acts once: its answer is kept in the transaction of the act."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from controlplane.errors import InvalidField
from controlplane.services.record_change import Change
from controlplane.storage.database import WriteSession
from controlplane.storage.repositories import idempotency


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptAnswer:
    """What the first request was answered."""

    status: int
    headers: dict[str, str]
    body: bytes


def claim_answer(change: Change, api_key_id: str, key: str, request_hash: str) -> KeptAnswer | None:
    """Claim a key for this request; the kept answer where it was claimed before by the same request."""
    row = idempotency.claim_key(
        change.session, api_key_id=api_key_id, key=key, request_hash=request_hash, now=change.now
    )
    if row is None:
        return None
    if row.request_hash != request_hash:
        raise InvalidField(field="Idempotency-Key", value=key, limit="unused, or sent with the same request")
    return KeptAnswer(status=row.status, headers=row.headers, body=row.body)


def keep_answer(
    change: Change, api_key_id: str, key: str, *, status: int, headers: dict[str, str], body: bytes
) -> None:
    """Keep the answer for the next time the key is sent."""
    idempotency.keep_answer(
        change.session, api_key_id=api_key_id, key=key, status=status, headers=headers, body=body
    )


def forget_old_answers(session: WriteSession, now: datetime, keep_seconds: float) -> None:
    """Forget answers older than the time they are promised for."""
    idempotency.forget_answers(session, now - timedelta(seconds=keep_seconds))
