"""The frozen snapshot a router serves from: version, arms, workers, limits; its generation only rises.

The centroid map is not part of it: `centroid_map.assign` makes it from the version and the workers, alike
everywhere. The settings a snapshot carries are checked here, so that a router never meets a bad one.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import ClassVar, Self
from urllib.parse import urlsplit

from eldr_runtime.errors import InvalidConfig
from eldr_runtime.experiment_design import ArmSchedule, ArmWindow, arm_at, check_arms
from eldr_runtime.json_values import check_wire_version, message_from_json, message_to_json
from eldr_runtime.model_shape import ModelShape
from eldr_runtime.policies.choice import PolicyName, PolicySettings

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_HASH = re.compile(r"[0-9a-f]{64}")


class WorkerRole(StrEnum):
    """Which half of a request a worker does."""

    PREFILL = "prefill"
    DECODE = "decode"


class WorkerState(StrEnum):
    """Where a worker is in its life; only a ready one takes new requests."""

    JOINING = "joining"
    READY = "ready"
    DRAINING = "draining"
    LOST = "lost"


class TransferMode(StrEnum):
    """Who starts the KV transfer; only with pull does the decode choice stay open until after prefill."""

    PULL = "pull"
    PUSH = "push"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """The model a fleet serves, by its wire names."""

    id: str
    layers: int
    experts: int
    top_k: int

    def __post_init__(self) -> None:
        self.to_shape()

    def to_shape(self) -> ModelShape:
        """Return the shape, which checks the limits."""
        return ModelShape(model=self.id, n_layers=self.layers, n_experts=self.experts, top_k=self.top_k)


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRef:
    """A centroid version and where its artifact is; the artifact must hash to `content_hash`."""

    id: str
    number: int
    content_hash: str
    artifact_url: str

    def __post_init__(self) -> None:
        check_name("id", self.id)
        if self.number < 1:
            raise InvalidConfig(field="number", value=self.number, limit="at least 1")
        if not _HASH.fullmatch(self.content_hash):
            limit = "64 lower-case hexadecimal digits"
            raise InvalidConfig(field="content_hash", value=self.content_hash, limit=limit)
        _check_text("artifact_url", self.artifact_url, 2048)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One way of routing that takes turns with the others.

    Parameters
    ----------
    version
        Its own centroid version, or None for that of the snapshot.
    share
        Share of windows in a canary.
    """

    name: str
    policy: PolicyName
    version: VersionRef | None = None
    tau: float = 0.1
    load_cap: float | None = None
    minimum_candidates: int = 1
    share: float = 1.0

    def __post_init__(self) -> None:
        check_name("name", self.name)
        if self.policy is PolicyName.DOMAIN:
            limit = "a policy that needs no true label; domain is for simulations"
            raise InvalidConfig(field="policy", value=self.policy.value, limit=limit)
        self.to_settings()
        if not 0 <= self.share <= 1:
            raise InvalidConfig(field="share", value=self.share, limit="from 0 to 1")

    def to_settings(self) -> PolicySettings:
        """Return the settings the policy is built from, which checks the limits."""
        return PolicySettings(
            policy=self.policy,
            tau=self.tau,
            load_cap=self.load_cap,
            minimum_candidates=self.minimum_candidates,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerEntry:
    """One worker of the fleet; `capacity` is the number of requests it takes at once.

    A router routes by load alone while a worker's `transfer_mode` is push.
    """

    id: str
    role: WorkerRole
    url: str
    state: WorkerState
    capacity: int
    transfer_mode: TransferMode = TransferMode.PULL

    def __post_init__(self) -> None:
        check_name("id", self.id)
        check_worker_url(self.url)
        if self.capacity < 1:
            raise InvalidConfig(field="capacity", value=self.capacity, limit="at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterLimits:
    """How much a router queues and samples.

    Parameters
    ----------
    max_queued_requests
        Requests that may wait for a worker before the router answers 429.
    event_sample_share
        Share of requests whose routing event is sent.
    signature_sample_share
        Share of requests whose event is sent with the prefill counts.
    decode_profile_share
        Share of requests whose decode workers send a profile.
    decode_profiles_per_second
        At most, over the fleet.
    metrics_window_seconds
        Length of a metrics window, which is sent when it is over; 1 to 60.
    """

    max_queued_requests: int = 1024
    event_sample_share: float = 0.01
    signature_sample_share: float = 0.01
    decode_profile_share: float = 0.01
    decode_profiles_per_second: float = 50.0
    metrics_window_seconds: float = 10.0

    def __post_init__(self) -> None:
        if self.max_queued_requests < 0:
            raise InvalidConfig(
                field="max_queued_requests", value=self.max_queued_requests, limit="0 or more"
            )
        for name in ("event_sample_share", "signature_sample_share", "decode_profile_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise InvalidConfig(field=name, value=getattr(self, name), limit="from 0 to 1")
        if not 0 <= self.decode_profiles_per_second <= 10_000:
            value = self.decode_profiles_per_second
            raise InvalidConfig(field="decode_profiles_per_second", value=value, limit="from 0 to 10000")
        if not 1 <= self.metrics_window_seconds <= 60:
            value = self.metrics_window_seconds
            raise InvalidConfig(field="metrics_window_seconds", value=value, limit="from 1 to 60")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingConfig:
    """Everything a router needs to serve one fleet.

    Parameters
    ----------
    generation
        Rises with every change; at least 1.
    version
        The active centroid version; None before the first activation, when routing goes by load.
    shadow
        A version that routers score and report on without serving it.
    workers
        All workers that belong to the fleet. Those not ready keep their place in the centroid map.
    """

    WIRE_VERSION: ClassVar[int] = 1

    v: int = WIRE_VERSION
    fleet: str
    generation: int
    issued_at: datetime
    model: ModelEntry
    version: VersionRef | None
    arms: tuple[Arm, ...]
    arm_schedule: ArmSchedule
    shadow: VersionRef | None = None
    workers: tuple[WorkerEntry, ...] = ()
    limits: RouterLimits = field(default_factory=RouterLimits)

    def __post_init__(self) -> None:
        check_wire_version(self.v, self.WIRE_VERSION)
        check_name("fleet", self.fleet)
        if self.generation < 1:
            raise InvalidConfig(field="generation", value=self.generation, limit="at least 1")
        if self.issued_at.tzinfo is None:
            raise InvalidConfig(field="issued_at", value=self.issued_at, limit="a time with its zone")
        check_arms(self.arm_schedule.kind, self.arms)
        ids = [worker.id for worker in self.workers]
        repeated = sorted({each for each in ids if ids.count(each) > 1})
        if repeated:
            raise InvalidConfig(field="workers", value=repeated[0], limit="listed once")

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read a snapshot of this wire version or the one before; fields it does not know are ignored."""
        return message_from_json(cls, text)

    def to_json(self) -> str:
        """Write the snapshot as JSON text, the same text for the same value."""
        return message_to_json(self)

    def arm_at(self, utc_seconds: float) -> ArmWindow:
        """Return the window of a moment and its arm."""
        return arm_at(self.arm_schedule, self.arms, utc_seconds)

    def version_of(self, arm: Arm) -> VersionRef | None:
        """Return the version an arm routes by."""
        return arm.version or self.version

    def versions(self) -> tuple[VersionRef, ...]:
        """Return every version the snapshot needs, each once, the active one first."""
        wanted = [self.version, *[arm.version for arm in self.arms], self.shadow]
        return tuple({each.content_hash: each for each in wanted if each is not None}.values())

    def worker_ids(self, role: WorkerRole, state: WorkerState = WorkerState.READY) -> tuple[str, ...]:
        """Return the sorted ids of the workers of one role in one state."""
        return _ids(each for each in self.workers if each.role is role and each.state is state)

    def absent_ids(self, role: WorkerRole) -> tuple[str, ...]:
        """Return the sorted ids of the workers of one role that are not ready."""
        return _ids(
            each for each in self.workers if each.role is role and each.state is not WorkerState.READY
        )


def check_worker_url(url: str) -> None:
    """Refuse what is not an absolute http or https URL of a host, without credentials in it."""
    _check_text("url", url, 2048)
    limit = "http://host or https://host, without credentials"
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  raises where the port is no number
    except ValueError as error:
        raise InvalidConfig(field="url", value=url, limit=limit) from error
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise InvalidConfig(field="url", value=url, limit=limit)


def _ids(workers: Iterable[WorkerEntry]) -> tuple[str, ...]:
    return tuple(sorted(worker.id for worker in workers))


def check_name(field_name: str, value: str) -> None:
    """Refuse what cannot be the name of a fleet, a worker, a version or an arm."""
    if not _NAME.fullmatch(value):
        limit = "1 to 128 letters, digits and any of . _ : -, the first a letter or digit"
        raise InvalidConfig(field=field_name, value=value, limit=limit)


def _check_text(field_name: str, value: str, max_characters: int) -> None:
    if not 1 <= len(value) <= max_characters:
        raise InvalidConfig(field=field_name, value=value[:80], limit=f"1 to {max_characters} characters")
