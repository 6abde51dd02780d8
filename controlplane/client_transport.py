"""How the client makes a call: one pool, problem documents as errors, JSON as values.

Errors, as one tree::

    ClientError
    ├── Unsendable       an address, a key or a text that no request can carry
    ├── Unreachable      no answer: connection refused, time-out
    ├── Refused          a problem document; `.problem` holds it
    │   └── Stale        412: somebody else changed it first
    └── Unreadable       an answer that is not what the API promises
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import quote
from uuid import uuid4

import httpx

from eldr_runtime.errors import InvalidMessage
from eldr_runtime.json_values import from_json_value, to_json_value

Value = TypeVar("Value")
PAGE_LIMIT = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemDocument:
    """Why a request was refused, as the API says it (RFC 9457)."""

    title: str
    status: int
    detail: str
    request_id: str
    field: str | None = None
    value: str | None = None
    limit: str | None = None


class ClientError(Exception):
    """Base of all errors of this client."""


class Unsendable(ClientError):
    """The call cannot be made at all."""


class Unreachable(ClientError):
    """The control plane gave no answer."""


class Unreadable(ClientError):
    """The answer is not what the API promises."""


class Refused(ClientError):
    """The control plane refused; `problem` says why."""

    def __init__(self, problem: ProblemDocument) -> None:
        self.problem = problem
        super().__init__(f"{problem.title}: {problem.detail} (request {problem.request_id})")


class Stale(Refused):
    """The resource changed since it was read."""


class ClientTransport:
    """One connection pool to one control plane."""

    def __init__(self, base_url: str, api_key: str, *, timeout_seconds: float) -> None:
        self.base_url = base_url
        try:
            self._http = httpx.Client(
                base_url=base_url,
                headers={"Authorization": f"Bearer {api_key}"},
                timeout=timeout_seconds,
                trust_env=False,
            )
        except httpx.InvalidURL as error:
            raise Unsendable(f"{base_url!r} is no address of a control plane: {error}") from error
        except UnicodeEncodeError as error:
            raise Unsendable("the API key has a character that no key has") from error

    def close(self) -> None:
        """Close the pool."""
        self._http.close()

    def get(self, kind: type[Value], path: str, parameters: Mapping[str, str] | None = None) -> Value:
        """Return a resource."""
        return decode(kind, self.send("GET", path, params=dict(parameters or {})))

    def list_all(
        self,
        kind: type[Value],
        path: str,
        parameters: Mapping[str, str] | None = None,
        *,
        follow: bool = True,
    ) -> tuple[Value, ...]:
        """Return a whole list, page by page, or with `follow` off its first page."""
        query = {"limit": str(PAGE_LIMIT), **(parameters or {})}
        items: list[Value] = []
        while True:
            page = _json(self.send("GET", path, params=query))
            if not isinstance(page, dict) or not isinstance(page.get("items"), list):
                raise Unreadable(f"{path} did not answer with a page of items")
            items += [_value(kind, item) for item in page["items"]]
            if not follow or page.get("next_cursor") is None:
                return tuple(items)
            query["cursor"] = str(page["next_cursor"])

    def act(
        self,
        kind: type[Value],
        path: str,
        command: object,
        *,
        dry_run: bool = False,
        idempotency_key: str | None = None,
        is_repeatable: bool = True,
    ) -> Value:
        """POST a command, with an Idempotency-Key unless its answer is not kept to be repeated."""
        parameters = {"dry_run": "true"} if dry_run else {}
        headers = idempotency(idempotency_key) if is_repeatable else {}
        body = to_json_value(command)
        return decode(kind, self.send("POST", path, params=parameters, json=body, headers=headers))

    def patch(
        self,
        kind: type[Value],
        path: str,
        command: object,
        revision: int | None,
        parameters: Mapping[str, str],
    ) -> Value:
        """PATCH a resource, at `revision` where one is given."""
        headers = {} if revision is None else {"If-Match": f'"{revision}"'}
        body = to_json_value(command)
        answer = self.send("PATCH", path, params=dict(parameters), json=body, headers=headers)
        return decode(kind, answer)

    def send(
        self,
        method: str,
        path: str,
        *,
        params: dict[str, str],
        json: object = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """Make one call; every refusal is a `ClientError`."""
        try:
            answer = self._http.request(
                method, path, params=params, json=json, content=content, headers=headers
            )
        except httpx.TransportError as error:
            raise Unreachable(f"no answer from {self.base_url}: {type(error).__name__} {error}") from error
        except UnicodeEncodeError as error:
            text = str(error.object)[error.start : error.end]
            raise Unsendable(f"{text!r} is no text that can be sent") from error
        if answer.status_code >= 400:
            raise _refusal(answer)
        return answer


def path_of(*parts: str) -> str:
    """Return the path of a resource; whatever is in a name, it stays one part."""
    return "/".join(["/v1", *(quote(part, safe="", errors="surrogatepass") for part in parts)])


def idempotency(key: str | None) -> dict[str, str]:
    """Return the header that makes repeating a POST harmless."""
    return {"Idempotency-Key": key or uuid4().hex}


def _refusal(answer: httpx.Response) -> ClientError:
    try:
        problem = from_json_value(ProblemDocument, _json(answer))
    except (InvalidMessage, Unreadable):
        return Unreadable(f"status {answer.status_code} without a problem document from {answer.url}")
    return Stale(problem) if answer.status_code == 412 else Refused(problem)


def _json(answer: httpx.Response) -> object:
    try:
        content: object = answer.json()
    except ValueError as error:
        raise Unreadable(f"{answer.url} did not answer with JSON") from error
    return content


def decode(kind: type[Value], answer: httpx.Response) -> Value:
    """Read an answer as a value of `kind`."""
    return _value(kind, _json(answer))


def _value(kind: type[Value], content: object) -> Value:
    try:
        return from_json_value(kind, content)
    except InvalidMessage as error:
        raise Unreadable(f"not a {kind.__name__}: {error}") from error
