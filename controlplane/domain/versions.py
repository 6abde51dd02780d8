"""Centroid versions, their activations and the routing settings, as the API speaks of them."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import ClassVar


class VersionState(StrEnum):
    """`candidate -> active -> retired`, `candidate -> rejected`."""

    CANDIDATE = "candidate"
    ACTIVE = "active"
    RETIRED = "retired"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateCheck:
    """One condition of promotion with what was found."""

    name: str
    is_passed: bool
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """An immutable centroid version; only its state moves."""

    id: str
    number: int
    fleet: str
    content_hash: str
    parent_hash: str | None
    origin: str
    state: VersionState
    transform: str
    n_centroids: int
    n_layers_kept: int
    n_requests: int
    held_out_percent: float | None
    rho: float | None
    metrics: dict[str, float]
    calibration_run_id: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionPreview:
    """What a promotion would do: the answer to `?dry_run=true`."""

    version: Version
    replaces: Version | None
    checks: tuple[GateCheck, ...]
    is_allowed: bool
    predicted_union_change_points: float | None
    generation_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Promote:
    """Command: make a version active. `is_override` passes a failed gate, with the reason on record."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    reason: str
    is_override: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RollBack:
    """Command: go back to `version_id`, or to the last version that was active before this one."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    reason: str
    version_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectVersion:
    """Command: a candidate shall not be promoted."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    reason: str


class ActivationKind(StrEnum):
    """Why the active version changed."""

    PROMOTE = "promote"
    ROLL_BACK = "roll_back"


@dataclass(frozen=True, slots=True, kw_only=True)
class Activation:
    """Who made which version active when, why, and until when it was."""

    id: str
    kind: ActivationKind
    version_id: str
    version_number: int
    actor: str
    reason: str
    is_override: bool
    generation: int
    at: datetime
    until: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingSettings:
    """One revision of the live knobs; `revert_at` is when an automatic revert is due."""

    revision: int
    generation: int
    policy: str
    tau: float
    load_cap: float | None
    control_share: float
    changed_at: datetime
    changed_by: str
    reason: str
    revert_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tune:
    """Command: change live knobs; a field left out keeps its value. `load_cap` 0 takes the cap away."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    reason: str
    policy: str | None = None
    tau: float | None = None
    load_cap: float | None = None
    control_share: float | None = None
    auto_revert_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningPreview:
    """What a change of the knobs would do, from replayed recent traffic; None where traffic is too thin."""

    before: RoutingSettings
    policy: str
    tau: float
    load_cap: float | None
    n_requests: int
    curve: tuple["TauPoint", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TauPoint:
    """Recent traffic replayed at one tau; TPOT where a latency model of the fleet is known."""

    tau: float
    similarity_kept_share: float
    load_max_over_mean: float
    predicted_union: float
    predicted_tpot_p50_ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveState:
    """What was live at one moment."""

    at: datetime
    generation: int
    activation: Activation | None
    settings: RoutingSettings
