"""The control port of a load generator: how its requests fare, and the mix of its traffic."""

from dataclasses import dataclass

import httpx

from controlplane.client_transport import Unreachable, Unreadable
from eldr_runtime.errors import InvalidMessage
from eldr_runtime.json_values import from_json_value

TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadStatus:
    """Requests since the load generator started; of what it says, only what the story needs."""

    sent: int
    finished: int
    failed: int
    in_flight: int


def read_load_status(control_url: str) -> LoadStatus:
    """Ask how the requests fare."""
    answer = _call("GET", f"{control_url}/status")
    try:
        return from_json_value(LoadStatus, answer.json())
    except (ValueError, InvalidMessage) as error:
        raise Unreadable(f"{answer.url}: {error}") from error


def inject_unseen_topic(control_url: str, share: float) -> None:
    """Set the share of the unseen topic."""
    _call("POST", f"{control_url}/mix", {"unseen_topic_share": share})


def _call(method: str, url: str, body: object = None) -> httpx.Response:
    try:
        answer = httpx.request(method, url, json=body, timeout=TIMEOUT_SECONDS, trust_env=False)
    except httpx.TransportError as error:
        raise Unreachable(f"no answer from the load generator at {url}: {type(error).__name__}") from error
    if not answer.is_success:
        raise Unreadable(f"{url} answered with status {answer.status_code}: {answer.text[:200]}")
    return answer
