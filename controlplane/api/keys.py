"""`/v1/keys`."""

from dataclasses import dataclass
from typing import ClassVar

from fastapi import APIRouter, Response

from controlplane.api.answers import answer
from controlplane.api.parameters import Cursor, Limit
from controlplane.api.security import AdminCall
from controlplane.domain.alerts import ApiKey, CreateApiKey, NewApiKey
from controlplane.domain.pages import Page
from controlplane.errors import MalformedRequest
from controlplane.services import manage_keys

router = APIRouter(prefix="/v1/keys", tags=["keys"])


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokeApiKey:
    """Command: a key shall be of no use from now on."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    reason: str


@router.get("")
def list_keys(call: AdminCall, cursor: Cursor = None, limit: Limit = 100) -> Page[ApiKey]:
    """List keys, newest first, without their secrets."""
    with call.read() as session:
        return manage_keys.list_keys(session, cursor, limit)


@router.post("", status_code=201, response_model=NewApiKey)
def make_key(command: CreateApiKey, call: AdminCall) -> Response:
    """Make a key. The answer is the only place its secret ever stands in, so it is not kept for a repeat."""
    if call.idempotency_key is not None:
        raise MalformedRequest("a new key takes no Idempotency-Key: its secret is not stored to be repeated")
    with call.change() as change:
        return answer(manage_keys.make_key(change, command), status=201)


@router.post("/{key_id}/revoke", response_model=ApiKey)
def revoke_key(key_id: str, command: RevokeApiKey, call: AdminCall) -> Response:
    """Make a key useless from now on."""
    return call.act(command, lambda change: manage_keys.revoke_key(change, key_id, command.reason))
