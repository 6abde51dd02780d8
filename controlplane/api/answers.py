"""Answers of acting requests: JSON of a value, its ETag, and what a client says it changes."""

import re
from typing import Annotated

import pydantic_core
from fastapi import Header, Response

from controlplane.errors import IfMatchRequired, MalformedRequest, StaleRevision

IfMatch = Annotated[
    str | None, Header(alias="If-Match", description="the ETag of the revision that is changed")
]
ETAG = re.compile(r'(?:W/)?"(\d{1,18})"')


def answer(value: object, *, status: int = 200, revision: int | None = None) -> Response:
    """Build the JSON answer of a value, with its revision as ETag where it has one."""
    headers = {} if revision is None else {"ETag": etag(revision)}
    return Response(to_json(value), status_code=status, headers=headers, media_type="application/json")


def to_json(value: object) -> bytes:
    """JSON of a value of the API."""
    return pydantic_core.to_json(value)


def etag(revision: int) -> str:
    """ETag of a revision."""
    return f'"{revision}"'


def check_if_match(if_match: str | None, *, revision: int, current: object) -> None:
    """Refuse a change that does not name the current revision; `current` goes into the answer."""
    if if_match is None:
        raise IfMatchRequired("say in If-Match which revision is changed; a GET answers it as ETag")
    found = ETAG.fullmatch(if_match.strip())
    if found is None and if_match.strip() != "*":
        raise MalformedRequest(f"If-Match is {if_match[:80]!r}; must be a quoted revision")
    if found is not None and int(found.group(1)) != revision:
        raise StaleRevision(given=if_match, current_revision=revision, current=current)


def is_unchanged(if_none_match: str | None, revision: int) -> bool:
    """Whether the client already has this revision."""
    return if_none_match is not None and etag(revision) in (
        tag.strip().removeprefix("W/") for tag in if_none_match.split(",")
    )
