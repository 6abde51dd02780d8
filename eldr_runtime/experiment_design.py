"""Arms that take turns over the whole pool, and the test that says whether one of them helps.

Requests share workers, so arms never split requests: each window of time belongs to one arm, drawn from
the schedule's seed and the number of the window, alike on every router. A switchback is a series of
randomised pairs of windows; its effect is judged by a sign-flip test over pairs.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from statistics import NormalDist
from typing import Protocol

import numpy as np

from eldr_runtime.array_types import Floats, Ints
from eldr_runtime.errors import InvalidConfig, InvalidValue

MAX_WINDOW_SECONDS = 86_400
MINIMUM_PAIRS = 6
# 2^14 sign vectors of 14 pairs are 1.8 MB; past it the null distribution is sampled.
MAX_EXACT_PAIRS = 14
N_SAMPLED_FLIPS = 20_000


class ScheduleKind(StrEnum):
    """How windows are given to arms."""

    SINGLE = "single"
    SWITCHBACK = "switchback"
    CANARY = "canary"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmSchedule:
    """Windows and who gets them.

    Parameters
    ----------
    seed
        Draws the order of arms; 0 to 2^53 - 1, which JSON carries exactly.
    window_seconds
        Length of a window, counted from the Unix epoch; 1 to 86,400.
    washout_seconds
        Start of each window that is not counted, as requests of the one before still run.
    """

    seed: int
    window_seconds: int
    washout_seconds: int
    kind: ScheduleKind

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**53:
            raise InvalidConfig(field="seed", value=self.seed, limit="an integer from 0 to 2^53 - 1")
        if not 1 <= self.window_seconds <= MAX_WINDOW_SECONDS:
            limit = f"an integer from 1 to {MAX_WINDOW_SECONDS}"
            raise InvalidConfig(field="window_seconds", value=self.window_seconds, limit=limit)
        if not 0 <= self.washout_seconds < self.window_seconds:
            limit = f"from 0 to below window_seconds, {self.window_seconds}"
            raise InvalidConfig(field="washout_seconds", value=self.washout_seconds, limit=limit)


class HasShare(Protocol):
    """What the schedule needs of an arm."""

    @property
    def name(self) -> str:
        """Return the name, unique among the arms."""

    @property
    def share(self) -> float:
        """Return the share of windows the arm gets in a canary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmWindow:
    """The window of one moment.

    Parameters
    ----------
    index
        Number of the window since the Unix epoch.
    arm, arm_index
        Name of the arm and its place among the arms.
    pair
        In a switchback the number of the pair the window belongs to, else None.
    window_start
        Unix seconds, UTC.
    """

    index: int
    arm: str
    arm_index: int
    pair: int | None
    is_washout: bool
    window_start: int


def check_arms(kind: ScheduleKind, arms: Sequence[HasShare]) -> None:
    """Refuse arms that a schedule of this kind cannot serve."""
    if len({arm.name for arm in arms}) != len(arms) or not arms:
        raise InvalidConfig(
            field="arms", value=[arm.name for arm in arms], limit="at least one, with distinct names"
        )
    if kind is ScheduleKind.SINGLE and len(arms) != 1:
        raise InvalidConfig(field="arms", value=len(arms), limit="one arm in a single schedule")
    if kind is not ScheduleKind.SINGLE and len(arms) != 2:
        raise InvalidConfig(field="arms", value=len(arms), limit=f"two arms in a {kind.value} schedule")
    for arm in arms:
        if not 0 <= arm.share <= 1:
            raise InvalidConfig(field=f"share of arm {arm.name!r}", value=arm.share, limit="from 0 to 1")
    total = math.fsum(arm.share for arm in arms)
    if kind is ScheduleKind.CANARY and abs(total - 1) > 1e-6:
        raise InvalidConfig(field="arms shares", value=total, limit="1 in sum in a canary schedule")


def arm_at(schedule: ArmSchedule, arms: Sequence[HasShare], utc_seconds: float) -> ArmWindow:
    """Return the window of a moment and its arm: a pure function of the schedule, the arms and the clock."""
    check_arms(schedule.kind, arms)
    if not (math.isfinite(utc_seconds) and utc_seconds >= 0):
        raise InvalidValue(field="utc_seconds", value=utc_seconds, limit="finite, 0 or more")
    index = math.floor(utc_seconds) // schedule.window_seconds
    start = index * schedule.window_seconds
    is_single = schedule.kind is ScheduleKind.SINGLE
    arm_index = 0 if is_single else _drawn_arm(schedule, arms, index)
    return ArmWindow(
        index=index,
        arm=arms[arm_index].name,
        arm_index=arm_index,
        pair=index // 2 if schedule.kind is ScheduleKind.SWITCHBACK else None,
        is_washout=not is_single and utc_seconds - start < schedule.washout_seconds,
        window_start=start,
    )


def _drawn_arm(schedule: ArmSchedule, arms: Sequence[HasShare], index: int) -> int:
    if schedule.kind is ScheduleKind.SWITCHBACK:
        first = 0 if _uniform(f"pair/{schedule.seed}/{index // 2}") < 0.5 else 1
        return first if index % 2 == 0 else 1 - first
    # Each window keeps its draw while the share grows, so a canary only ever gains windows.
    return 1 if _uniform(f"window/{schedule.seed}/{index}") < arms[1].share else 0


def _uniform(text: str) -> float:
    """Return a number in [0, 1) that every process draws alike."""
    word = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
    return (word >> 11) / 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class SignFlipResult:
    """Effect of one arm over the other, from log ratios by pair.

    Parameters
    ----------
    mean
        Mean log ratio; `exp(mean) - 1` is the relative change. None without a pair.
    interval
        95 % interval (or as asked for) by inverting the test; None where the result is not conclusive.
    p_value
        Two-sided, of no effect; None where there are too few pairs.
    is_conclusive
        There are enough pairs. It does not say that there is an effect.
    """

    mean: float | None
    interval: tuple[float, float] | None
    p_value: float | None
    n_pairs: int
    is_conclusive: bool
    confidence: float

    @property
    def has_effect(self) -> bool:
        """Whether the interval excludes no effect."""
        return self.interval is not None and not self.interval[0] <= 0 <= self.interval[1]

    @property
    def change_percent(self) -> float | None:
        """Mean effect as a relative change in percent."""
        return None if self.mean is None else 100 * math.expm1(self.mean)


def sign_flip_test(
    log_ratios: Floats, *, confidence: float = 0.95, minimum_pairs: int = MINIMUM_PAIRS, seed: int = 1
) -> SignFlipResult:
    """Test whether paired log ratios are centred on zero (Fisher's randomisation test; the use is ours).

    Within a pair the coin that ordered the arms could have fallen the other way, which flips the sign of
    the ratio. Up to 14 pairs all sign vectors are enumerated, past it 20,000 are drawn.

    Parameters
    ----------
    log_ratios
        float64 `(n_pairs,)`, log of treatment over control.
    confidence
        Of the interval, which holds every shift the test does not reject.
    minimum_pairs
        Below it the result is inconclusive; at least 6, as 2^6 signs are needed for p below 0.05.
    seed
        Of the drawn sign vectors.

    Examples
    --------
    >>> result = sign_flip_test(np.full(6, -0.1))
    >>> round(result.p_value, 5), result.has_effect
    (0.03125, True)
    """
    ratios = _checked_ratios(log_ratios, confidence, minimum_pairs)
    n_pairs = len(ratios)
    mean = float(ratios.mean()) if n_pairs else None
    if n_pairs < minimum_pairs:
        return SignFlipResult(
            mean=mean,
            interval=None,
            p_value=None,
            n_pairs=n_pairs,
            is_conclusive=False,
            confidence=confidence,
        )
    signs = _sign_vectors(n_pairs, seed)
    flipped = signs @ ratios / n_pairs
    return SignFlipResult(
        mean=mean,
        interval=_inverted_interval(ratios, signs, 1 - confidence),
        p_value=_p_value(flipped, abs(float(ratios.mean()))),
        n_pairs=n_pairs,
        is_conclusive=True,
        confidence=confidence,
    )


def pairs_needed(
    effect: float, standard_deviation: float, *, confidence: float = 0.95, power: float = 0.8
) -> int:
    """Return how many pairs show an effect with the given power: the normal approximation, at least 6.

    Parameters
    ----------
    effect, standard_deviation
        Mean and standard deviation of the log ratio of one pair.

    Examples
    --------
    >>> pairs_needed(-0.05, 0.05)
    8
    """
    if not (math.isfinite(effect) and effect != 0):
        raise InvalidValue(field="effect", value=effect, limit="finite and not 0")
    if not (math.isfinite(standard_deviation) and standard_deviation >= 0):
        raise InvalidValue(field="standard_deviation", value=standard_deviation, limit="finite, 0 or more")
    for name, share in (("confidence", confidence), ("power", power)):
        if not 0 < share < 1:
            raise InvalidValue(field=name, value=share, limit="above 0 and below 1")
    quantiles = NormalDist().inv_cdf((1 + confidence) / 2) + NormalDist().inv_cdf(power)
    return max(MINIMUM_PAIRS, math.ceil((quantiles * standard_deviation / effect) ** 2))


def complete_pairs(windows: Sequence[int]) -> Ints:
    """Return the switchback pairs of which both windows are given, int64 `(n_pairs,)`, ascending."""
    ordered = sorted(set(windows))
    pairs = [even // 2 for even, odd in pairwise(ordered) if even % 2 == 0 and odd == even + 1]
    return np.array(pairs, dtype=np.int64)


def _checked_ratios(log_ratios: Floats, confidence: float, minimum_pairs: int) -> Floats:
    ratios = np.asarray(log_ratios, dtype=np.float64)
    if ratios.ndim != 1 or not np.isfinite(ratios).all():
        raise InvalidValue(field="log_ratios", value=ratios.tolist(), limit="finite numbers, one a pair")
    if not 0.5 <= confidence < 1:
        raise InvalidValue(field="confidence", value=confidence, limit="from 0.5 to below 1")
    if minimum_pairs < MINIMUM_PAIRS:
        raise InvalidValue(field="minimum_pairs", value=minimum_pairs, limit=f"at least {MINIMUM_PAIRS}")
    return ratios


def _sign_vectors(n_pairs: int, seed: int) -> Floats:
    """Sign vectors float64 `(n_flips, n_pairs)`; the first is all ones, the order that was observed."""
    if n_pairs <= MAX_EXACT_PAIRS:
        is_flipped = (np.arange(2**n_pairs)[:, None] >> np.arange(n_pairs)) & 1
    else:
        is_flipped = np.random.default_rng(seed).integers(0, 2, size=(N_SAMPLED_FLIPS, n_pairs))
        is_flipped[0] = 0
    return np.where(is_flipped, np.float64(-1), np.float64(1))


def _p_value(flipped_means: Floats, observed: float) -> float:
    """Return the share of sign vectors whose mean is as far from zero; equal up to rounding counts."""
    tolerance = 1e-12 * max(1.0, observed)
    return float(np.mean(np.abs(flipped_means) >= observed - tolerance))


def _inverted_interval(ratios: Floats, signs: Floats, alpha: float) -> tuple[float, float]:
    """Return the least and greatest shift that the test does not reject.

    Take the ratios less a shift. With the set F flipped their mean is at least as far from zero as unflipped
    exactly where the shift lies between the mean ratio of F and that of the rest: write both as sums A over
    F and B over the rest, then |B - A| >= |B + A| says A * B <= 0. So the p-value is a step function of the
    shift and the interval ends at order statistics of those means: no search is needed.
    """
    n_pairs = len(ratios)
    n_flipped = (signs < 0).sum(axis=1)
    proper = (n_flipped > 0) & (n_flipped < n_pairs)
    sum_flipped = ((1 - signs[proper]) / 2) @ ratios
    of_flipped = sum_flipped / n_flipped[proper]
    of_rest = (ratios.sum() - sum_flipped) / (n_pairs - n_flipped[proper])
    low, high = np.minimum(of_flipped, of_rest), np.maximum(of_flipped, of_rest)
    # All means lie on both sides of the overall one, so below it `low` alone decides and above it `high`.
    # The identity and the full flip always count.
    n_allowed = alpha * len(signs) - int((~proper).sum())
    if n_allowed < 0:
        return -math.inf, math.inf
    rank = math.floor(n_allowed + 1e-9)
    return float(np.sort(low)[rank]), float(np.sort(high)[::-1][rank])
