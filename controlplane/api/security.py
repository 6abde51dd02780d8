"""Who asks, what they may do, and the transaction they do it in: one dependency a role."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, TypeVar

from fastapi import Depends, Header, Request, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from controlplane.api.answers import answer, to_json
from controlplane.api.state import AppState, State
from controlplane.domain.alerts import Role
from controlplane.errors import Forbidden, Unauthenticated
from controlplane.services.answer_once import claim_answer, keep_answer
from controlplane.services.manage_keys import Principal, authenticate, note_use
from controlplane.services.record_change import Change
from controlplane.storage.database import ReadSession

Value = TypeVar("Value")

bearer = HTTPBearer(auto_error=False, bearerFormat="eldr_ID_SECRET", description="an API key")
Bearer = Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        max_length=256,
        description="the same key with the same request gets the same answer, and acts once",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One authenticated request: what reads and acts for it."""

    state: AppState
    principal: Principal
    request_id: str
    now: datetime
    request_line: str
    idempotency_key: str | None

    @contextmanager
    def read(self) -> Iterator[ReadSession]:
        """Open the transaction of a request that reads."""
        with self.state.database.read() as session:
            yield session

    @contextmanager
    def change(self) -> Iterator[Change]:
        """Open the one transaction of a request that changes something, without an idempotency key."""
        with self.state.database.write() as session:
            yield Change(session=session, actor=self.principal.name, request_id=self.request_id, now=self.now)

    def act(
        self,
        command: object,
        work: Callable[[Change], Value],
        *,
        status: int = 200,
        revision_of: Callable[[Value], int] | None = None,
    ) -> Response:
        """Do `work` in one transaction and answer its value; a repeated Idempotency-Key gets the kept answer.

        `command` is what the request asks (its body, or the hash of an upload), so that the same key with
        another request is refused.
        """
        with self.change() as change:
            if self.idempotency_key is not None:
                kept = claim_answer(change, self.principal.key_id, self.idempotency_key, self._hash(command))
                if kept is not None:
                    return Response(kept.body, kept.status, {**kept.headers, "Idempotent-Replay": "true"})
            value = work(change)
            revision = None if revision_of is None else revision_of(value)
            response = answer(value, status=status, revision=revision)
            if self.idempotency_key is not None:
                keep_answer(
                    change,
                    self.principal.key_id,
                    self.idempotency_key,
                    status=status,
                    headers={"Content-Type": "application/json"}
                    | ({} if revision is None else {"ETag": response.headers["etag"]}),
                    body=bytes(response.body),
                )
        return response

    def _hash(self, command: object) -> str:
        return hashlib.sha256(self.request_line.encode() + b"\0" + to_json(command)).hexdigest()


def _call_of(*roles: Role) -> Callable[..., Call]:
    """Build the dependency that admits these roles; it is the only place where roles are checked."""

    def check(request: Request, state: State, token: Bearer, idempotency_key: IdempotencyKey = None) -> Call:
        if token is None:
            raise Unauthenticated("send an API key as Authorization: Bearer eldr_ID_SECRET")
        now = state.clock()
        with state.database.read() as session:
            principal = authenticate(session, token.credentials, now)
        if principal.role not in roles:
            raise Forbidden(
                f"key {principal.name!r} is {principal.role}; this needs {' or '.join(sorted(roles))}"
            )
        note_use(state.database, principal, now)
        return Call(
            state=state,
            principal=principal,
            request_id=request.state.request_id,
            now=now,
            request_line=f"{request.method} {request.url.path}?{request.url.query}",
            idempotency_key=idempotency_key,
        )

    check.roles = roles  # type: ignore[attr-defined]  # read by the test that lists which route admits whom
    return check


ViewerCall = Annotated[Call, Depends(_call_of(Role.VIEWER, Role.OPERATOR, Role.ADMIN))]
OperatorCall = Annotated[Call, Depends(_call_of(Role.OPERATOR, Role.ADMIN))]
AdminCall = Annotated[Call, Depends(_call_of(Role.ADMIN))]
ServiceCall = Annotated[Call, Depends(_call_of(Role.SERVICE))]
ReaderCall = Annotated[Call, Depends(_call_of(Role.SERVICE, Role.VIEWER, Role.OPERATOR, Role.ADMIN))]
