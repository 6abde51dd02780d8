"""One shape for every error: RFC 9457 problem documents."""

import json
import logging
import re
from dataclasses import asdict, dataclass, is_dataclass
from http import HTTPStatus

import pydantic_core
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from controlplane.errors import NotReady, RefusedRequest, StaleRevision, Unauthenticated
from eldr_runtime.errors import EldrError, InvalidValue, ModelMismatch

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
MAX_VALUE_LENGTH = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why a request was not carried out; `field`, `value` and `limit` name the culprit where there is one."""

    type: str
    title: str
    status: int
    detail: str
    request_id: str
    field: str | None = None
    value: str | None = None
    limit: str | None = None
    current: dict[str, object] | None = None


def install_problems(app: FastAPI) -> None:
    """Answer every error the application raises with a problem document."""
    app.add_exception_handler(RefusedRequest, _answer_refused)
    app.add_exception_handler(EldrError, _answer_runtime_error)
    app.add_exception_handler(RequestValidationError, _answer_invalid)
    app.add_exception_handler(HTTPException, _answer_http_error)


def problem_of_unexpected(request_id: str) -> Response:
    """Answer to an error nobody expected; what it was stands in the log under the request id."""
    detail = f"an unexpected error, logged under request id {request_id}"
    return _answer(
        Problem(
            type=_type("Internal error"),
            title="Internal error",
            status=500,
            detail=detail,
            request_id=request_id,
        )
    )


def _answer_refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedRequest)
    problem = Problem(
        type=_type(error.title),
        title=error.title,
        status=error.status,
        detail=str(error),
        request_id=request.state.request_id,
        field=_text(getattr(error, "field", None)),
        value=_text(getattr(error, "value", None)),
        limit=_text(getattr(error, "limit", None)),
        current=_current(error),
    )
    return _answer(problem, _headers_of(error))


def _answer_runtime_error(request: Request, error: Exception) -> Response:
    status, title = (409, "Other model") if isinstance(error, ModelMismatch) else (422, "Invalid content")
    if isinstance(error, InvalidValue):
        title = "Invalid value"
    problem = Problem(
        type=_type(title),
        title=title,
        status=status,
        detail=str(error),
        request_id=request.state.request_id,
        field=_text(getattr(error, "field", None)),
        value=_text(getattr(error, "value", None)),
        limit=_text(getattr(error, "limit", None)),
    )
    return _answer(problem)


def _answer_invalid(request: Request, error: Exception) -> Response:
    """Answer with the first thing that is wrong, by its path in the request."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    path = [str(part) for part in first["loc"]]
    field = ".".join(path[1:]) or path[0]
    value: object = first.get("input")
    limit = str(first["msg"])
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, InvalidValue):
        inner = cause.field.removeprefix("$.")
        field = inner if len(path) == 1 else f"{field}.{inner}"
        value, limit = cause.value, cause.limit
    is_json = first["type"] != "json_invalid"
    problem = Problem(
        type=_type("Invalid value" if is_json else "Malformed request"),
        title="Invalid value" if is_json else "Malformed request",
        status=422 if is_json else 400,
        detail=f"{field}: {limit}",
        request_id=request.state.request_id,
        field=field,
        value=_text(value),
        limit=limit,
    )
    return _answer(problem)


def _answer_http_error(request: Request, error: Exception) -> Response:
    """Answer what the framework itself refuses: an unknown path, a method that is not there."""
    assert isinstance(error, HTTPException)
    title = HTTPStatus(error.status_code).phrase
    detail = str(error.detail) if error.detail != title else f"{request.method} {request.url.path}: {title}"
    problem = Problem(
        type=_type(title),
        title=title,
        status=error.status_code,
        detail=detail,
        request_id=request.state.request_id,
    )
    return _answer(problem, dict(error.headers or {}))


def _headers_of(error: RefusedRequest) -> dict[str, str]:
    match error:
        case Unauthenticated():
            return {"WWW-Authenticate": "Bearer"}
        case StaleRevision():
            return {"ETag": f'"{error.current_revision}"'}
        case NotReady():
            return {"Retry-After": "1"}
        case _:
            return {}


def _answer(problem: Problem, headers: dict[str, str] | None = None) -> Response:
    plain = {key: value for key, value in asdict(problem).items() if value is not None}
    body = json.dumps(plain).encode()
    return Response(body, status_code=problem.status, headers=headers, media_type=MEDIA_TYPE)


def _type(title: str) -> str:
    return "urn:eldr:problem:" + re.sub(r"[^a-z0-9]+", "-", title.lower())


def _text(value: object) -> str | None:
    return None if value is None else str(value)[:MAX_VALUE_LENGTH]


def _current(error: RefusedRequest) -> dict[str, object] | None:
    if not isinstance(error, StaleRevision) or not is_dataclass(error.current):
        return None
    plain: dict[str, object] = pydantic_core.to_jsonable_python(error.current)
    return plain
