"""What a load generator says of itself at its control port; only what the story needs of it."""

from dataclasses import dataclass

import httpx

from eldr_runtime.json_values import from_json_value

TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadStatus:
    """Requests since the load generator started."""

    sent: int
    finished: int
    failed: int
    in_flight: int


def read_load_status(control_url: str) -> LoadStatus:
    """Ask the load generator."""
    answer = httpx.get(f"{control_url}/status", timeout=TIMEOUT_SECONDS, trust_env=False)
    answer.raise_for_status()
    return from_json_value(LoadStatus, answer.json())
