"""What a routing policy is asked, what it answers, and the settings it is built from."""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np

from eldr_runtime.array_types import Floats, Floats32
from eldr_runtime.errors import InvalidConfig, InvalidValue
from eldr_runtime.worker_load import PoolView

DEFAULT_LOAD_CAP = 1.25
MAX_TAU = 2.0


class PolicyName(StrEnum):
    """Every policy by the name that configurations carry."""

    ELDR = "eldr"
    ELDR_CAPPED = "eldr_capped"
    ROUND_ROBIN = "round_robin"
    RANDOM = "random"
    JOIN_SHORTEST_QUEUE = "join_shortest_queue"
    POWER_OF_TWO_CHOICES = "power_of_two_choices"
    DOMAIN = "domain"


class Reason(StrEnum):
    """Why a request went where it went."""

    WITHIN_BAND = "within_band"
    BAND_WIDENED = "band_widened"
    NO_SIGNATURE = "no_signature"
    TURN = "turn"
    DRAW = "draw"
    LEAST_LOADED = "least_loaded"
    LESS_LOADED_OF_TWO = "less_loaded_of_two"
    LABEL_POOL = "label_pool"
    SHARED_POOL = "shared_pool"
    UNKNOWN_LABEL = "unknown_label"


class TieBreak(StrEnum):
    """How a policy settles what its score leaves open."""

    LOWEST_INDEX = "lowest_index"
    SEEDED_DRAW = "seeded_draw"
    POSITION = "position"
    """The place in the pool decides more than ties, so permuting workers changes the choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySettings:
    """Name and knobs of one policy.

    Parameters
    ----------
    tau
        Width of the locality band in cosine similarity, from 0 (pure locality) to 2.
    load_cap
        Factor over the mean load, for `eldr_capped` alone; None there means 1.25.
    minimum_candidates
        2 is the published variant `min2`: where tau > 0 and the band holds one worker, the two most
        similar form it.
    """

    policy: PolicyName
    tau: float = 0.1
    load_cap: float | None = None
    minimum_candidates: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.policy, PolicyName):
            raise InvalidConfig(field="policy", value=self.policy, limit=f"one of {', '.join(PolicyName)}")
        if not 0 <= self.tau <= MAX_TAU:
            raise InvalidConfig(field="tau", value=self.tau, limit=f"from 0 to {MAX_TAU:g}")
        if self.minimum_candidates not in (1, 2):
            raise InvalidConfig(field="minimum_candidates", value=self.minimum_candidates, limit="1 or 2")
        if self.load_cap is None:
            return
        if self.policy is not PolicyName.ELDR_CAPPED:
            limit = f"absent with policy {self.policy.value}; only {PolicyName.ELDR_CAPPED.value} has a cap"
            raise InvalidConfig(field="load_cap", value=self.load_cap, limit=limit)
        if not (math.isfinite(self.load_cap) and self.load_cap >= 1):
            raise InvalidConfig(field="load_cap", value=self.load_cap, limit="a finite number of at least 1")

    @property
    def effective_load_cap(self) -> float | None:
        """The cap in force, None where the policy has none."""
        if self.policy is PolicyName.ELDR_CAPPED and self.load_cap is None:
            return DEFAULT_LOAD_CAP
        return self.load_cap


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RoutingRequest:
    """What a policy may know of a request.

    Parameters
    ----------
    similarities
        float32 `(n_workers,)`, similarity to each candidate, or None without a signature.
    label
        The true category, which only the `domain` oracle looks at.
    """

    similarities: Floats32 | None = None
    label: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The index chosen, the candidates it was chosen from (ascending indices), and why."""

    index: int
    band: tuple[int, ...]
    reason: Reason


class RoutingPolicy(Protocol):
    """Chooses one worker of a pool; keeps no state between calls and never changes the pool."""

    @property
    def tie_break(self) -> TieBreak:
        """How ties are settled."""

    def choose(self, request: RoutingRequest, pool: PoolView, rng: np.random.Generator) -> Choice:
        """Choose a worker; `rng` settles ties and draws, so one seed gives one sequence of choices."""


def checked_similarities(similarities: Floats32, pool: PoolView) -> Floats:
    """Return similarities in double precision; refuse what is not one finite number a candidate."""
    if similarities.shape != (len(pool.worker_ids),):
        limit = f"one number a candidate, shape ({len(pool)},)"
        raise InvalidValue(field="similarities shape", value=similarities.shape, limit=limit)
    numbers = similarities.astype(np.float64)
    if not math.isfinite(numbers.dot(numbers)):
        raise InvalidValue(field="similarities", value=numbers.tolist(), limit="finite numbers")
    return numbers
