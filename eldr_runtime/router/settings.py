"""Everything one router process is told when it starts."""

import math
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from eldr_runtime.errors import InvalidConfig
from eldr_runtime.router.deadline import Timeouts

ENVIRONMENT_PREFIX = "ELDR_ROUTER_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often the router does what it does besides serving, how long it waits there, and two shares.

    Parameters
    ----------
    stop_seconds
        What requests in flight get when the router is stopped.
    unreachable_seconds
        How long a worker rests after a refused connection.
    minimum_coverage_share
        Of the prompt's tokens whose experts must be known for a signature.
    decode_profile_wait_seconds
        How long an event waits for its decode profile.
    telemetry_keep_seconds
        How long metrics are kept for a control plane that does not answer.
    """

    config_poll_seconds: float = 0.5
    heartbeat_seconds: float = 2.0
    telemetry_seconds: float = 1.0
    scrape_seconds: float = 2.0
    control_plane_timeout_seconds: float = 5.0
    stop_seconds: float = 30.0
    unreachable_seconds: float = 1.0
    minimum_coverage_share: float = 0.5
    decode_profile_wait_seconds: float = 5.0
    telemetry_keep_seconds: float = 600.0
    probe_seconds: float = 30.0

    def __post_init__(self) -> None:
        _check_positive(self)
        if self.minimum_coverage_share > 1:
            value = self.minimum_coverage_share
            raise InvalidConfig(field="minimum_coverage_share", value=value, limit="at most 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much the router takes: bytes of a request, requests at once, events not yet delivered."""

    max_body_bytes: int = 32 << 20
    max_in_flight: int = 4096
    max_queued_events: int = 4096

    def __post_init__(self) -> None:
        _check_positive(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterSettings:
    """Settings of a router.

    Parameters
    ----------
    control_plane_url
        Where the configuration comes from; None to serve from disk or from `workers_file` alone.
    fleet
        The fleet this router serves.
    data_dir
        Folder that keeps the last good configuration and its artifacts.
    router_id
        Name of this router; one name, one process.
    api_key
        Key of the role `service` for the control plane.
    workers_file
        JSON file with workers to serve by load alone while there is no configuration.
    """

    control_plane_url: str | None
    fleet: str
    data_dir: Path
    router_id: str = field(default_factory=socket.gethostname)
    api_key: str | None = field(default=None, repr=False)
    workers_file: Path | None = None
    timeouts: Timeouts = field(default_factory=Timeouts)
    pace: Pace = field(default_factory=Pace)
    bounds: Bounds = field(default_factory=Bounds)

    def __post_init__(self) -> None:
        for name in ("fleet", "router_id"):
            if not getattr(self, name):
                raise InvalidConfig(field=name, value=getattr(self, name), limit="a name")
        url = self.control_plane_url
        if url is not None and not url.startswith(("http://", "https://")):
            limit = "an address that begins with http:// or https://"
            raise InvalidConfig(field="control_plane_url", value=url, limit=limit)

    def with_environment(self, environment: Mapping[str, str] | None = None) -> "RouterSettings":
        """Return the settings with `ELDR_ROUTER_<FIELD>` taken in; a name that is no field is refused."""
        waits: dict[str, float] = {}
        paces: dict[str, float] = {}
        bounds: dict[str, int] = {}
        for variable, text in (os.environ if environment is None else environment).items():
            if not variable.startswith(ENVIRONMENT_PREFIX):
                continue
            name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
            if name in _names(Bounds):
                bounds[name] = _whole(variable, text)
            elif name in _names(Timeouts):
                waits[name] = _number(variable, text)
            elif name in _names(Pace):
                paces[name] = _number(variable, text)
            else:
                known = sorted(_names(Bounds) + _names(Timeouts) + _names(Pace))
                limit = f"{ENVIRONMENT_PREFIX} and one of {', '.join(known).upper()}"
                raise InvalidConfig(field="environment variable", value=variable, limit=limit)
        return replace(
            self,
            timeouts=replace(self.timeouts, **waits),
            pace=replace(self.pace, **paces),
            bounds=replace(self.bounds, **bounds),
        )


def _names(settings: type[Timeouts] | type[Pace] | type[Bounds]) -> list[str]:
    return [each.name for each in fields(settings)]


def _check_positive(settings: Pace | Bounds) -> None:
    for each in fields(settings):
        value = getattr(settings, each.name)
        if not 0 < value < math.inf:
            raise InvalidConfig(field=each.name, value=value, limit="over 0 and finite")


def _number(variable: str, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise InvalidConfig(field=variable, value=text, limit="a number") from error


def _whole(variable: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise InvalidConfig(field=variable, value=text, limit="a whole number") from error
