"""What the application opened at its start, as handlers get it."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, TypedDict

from fastapi import Depends, Request

from controlplane.settings import Settings
from controlplane.storage.database import Database


@dataclass(frozen=True, slots=True, kw_only=True)
class AppState:
    """Settings, database and clock of a running control plane."""

    settings: Settings
    database: Database
    clock: Callable[[], datetime]


class LifespanState(TypedDict):
    """What the lifespan yields; `request.state` holds it."""

    app: AppState


def utc_now() -> datetime:
    """Time of the server, which all leases and expiries go by."""
    return datetime.now(UTC)


def state_of(request: Request) -> AppState:
    """State of the application that serves a request."""
    state: AppState = request.state.app
    return state


State = Annotated[AppState, Depends(state_of)]
