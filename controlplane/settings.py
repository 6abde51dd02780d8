"""Settings of the control plane process, read once from `ELDR_` variables."""

import ipaddress
import math
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Self

from controlplane.errors import InvalidSettings

PREFIX = "ELDR_"
# Of clients, tests, the router and the dashboard, which may share this environment.
VARIABLES_OF_OTHERS = frozenset({"ELDR_API_KEY", "ELDR_CONTROL_PLANE_URL", "ELDR_FLEET", "ELDR_SHARED_DATA"})
PREFIXES_OF_OTHERS = ("ELDR_ROUTER_", "ELDR_DASHBOARD_")
LOG_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the process may be told from outside. `ELDR_LEASE_SECONDS` sets `lease_seconds`, and so on."""

    database_url: str = field(
        default="sqlite:///eldr.db",
        metadata={"help": "SQLAlchemy URL of the database: sqlite:///FILE, or postgresql://USER@HOST/NAME"},
    )
    host: str = field(default="127.0.0.1", metadata={"help": "address to listen on"})
    port: int = field(default=8790, metadata={"help": "TCP port to listen on"})
    worker_hosts: str = field(
        default="127.0.0.0/8,::1/128,localhost",
        metadata={"help": "hosts, IP addresses and networks a worker's URL may name, with commas between"},
    )
    lease_seconds: float = field(
        default=10.0, metadata={"help": "seconds without a heartbeat after which a worker counts as lost"}
    )
    heartbeat_seconds: float = field(
        default=2.0, metadata={"help": "seconds between heartbeats that workers and routers are asked for"}
    )
    artifact_limit_bytes: int = field(
        default=64 * 1024**2, metadata={"help": "bytes an uploaded centroid version may have"}
    )
    trace_pack_limit_bytes: int = field(
        default=512 * 1024**2, metadata={"help": "bytes an uploaded trace pack may have"}
    )
    message_limit_bytes: int = field(
        default=32 * 1024**2, metadata={"help": "bytes the JSON body of a request may have"}
    )
    idempotency_seconds: float = field(
        default=86_400.0, metadata={"help": "seconds the answer to an Idempotency-Key is kept"}
    )
    refit_cooldown_seconds: float = field(
        default=3600.0, metadata={"help": "seconds after a refit in which drift starts no other"}
    )
    refit_minimum_samples: int = field(
        default=1000, metadata={"help": "sampled requests a refit needs at least"}
    )
    refits_per_day: int = field(
        default=4, metadata={"help": "refits a day that drift may start in one fleet"}
    )
    calibration_minimum_samples: int = field(
        default=200, metadata={"help": "sampled requests a calibration from live traffic needs at least"}
    )
    calibration_splits: int = field(
        default=10, metadata={"help": "halves that a calibration judges its version on, at least 2"}
    )
    samples_with_counts: int = field(
        default=50_000, metadata={"help": "sampled requests a fleet whose expert counts are kept, the newest"}
    )
    experiment_settle_seconds: float = field(
        default=30.0, metadata={"help": "seconds that metrics may come after an experiment's end"}
    )
    drift_check_seconds: float = field(default=60.0, metadata={"help": "seconds between two drift checks"})
    drift_window_seconds: float = field(
        default=900.0, metadata={"help": "seconds of recent samples a drift check looks at"}
    )
    drift_minimum_samples: int = field(
        default=200, metadata={"help": "samples under which a drift check says insufficient data"}
    )
    drift_reference_samples: int = field(
        default=2000,
        metadata={"help": "first live samples a version of a trace pack is compared with"},
    )
    notify_urls: str = field(
        default="", metadata={"help": "webhooks that alerts are posted to, with commas between"}
    )
    log_level: str = field(default="info", metadata={"help": "debug, info, warning or error"})

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, int | float) and not (math.isfinite(value) and value > 0):
                raise InvalidSettings(f"{variable_name(item)} is {value!r}; must be greater than 0")
        if self.port > 65_535:
            raise InvalidSettings(f"ELDR_PORT is {self.port}; must be at most 65535")
        if self.heartbeat_seconds * 2 > self.lease_seconds:
            raise InvalidSettings(
                f"ELDR_LEASE_SECONDS is {self.lease_seconds}; must be at least twice ELDR_HEARTBEAT_SECONDS, "
                f"{self.heartbeat_seconds}"
            )
        if self.log_level not in LOG_LEVELS:
            raise InvalidSettings(f"ELDR_LOG_LEVEL is {self.log_level!r}; must be one of {LOG_LEVELS}")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Read the `ELDR_` variables; an unknown one is an error, so that no typing mistake is silent."""
        known = {variable_name(item): item for item in fields(cls)}
        given = {name: text for name, text in environment.items() if _is_ours(name)}
        unknown = sorted(given.keys() - known.keys())
        if unknown:
            raise InvalidSettings(f"unknown variables: {', '.join(unknown)}; known are: {', '.join(known)}")
        values = {known[name].name: _parse(known[name], text) for name, text in given.items()}
        return cls(**values)  # type: ignore[arg-type]  # each value has been parsed to its field's type

    def allows_worker_host(self, host: str) -> bool:
        """Whether a worker's URL may name this host: by name, by address, or by a network that holds it."""
        entries = [entry.strip().lower() for entry in self.worker_hosts.split(",") if entry.strip()]
        if host.lower() in entries:
            return True
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        return any(address in network for network in _networks(entries))


def variable_name(item: "Field[object]") -> str:
    """Name of the variable that sets a field."""
    return PREFIX + item.name.upper()


def _is_ours(name: str) -> bool:
    is_of_others = name in VARIABLES_OF_OTHERS or name.startswith(PREFIXES_OF_OTHERS)
    return name.startswith(PREFIX) and not is_of_others


def _parse(item: "Field[object]", text: str) -> str | int | float:
    default = item.default
    try:
        if isinstance(default, int):
            return int(text)
        if isinstance(default, float):
            return float(text)
    except ValueError as error:
        raise InvalidSettings(f"{variable_name(item)} is {text!r}; must be a number") from error
    return text


def _networks(entries: list[str]) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    networks = []
    for entry in entries:
        try:
            networks.append(ipaddress.ip_network(entry))
        except ValueError:
            continue  # a host name
    return networks
