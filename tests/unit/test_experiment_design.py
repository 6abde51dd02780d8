import math
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eldr_runtime.errors import InvalidConfig, InvalidValue
from eldr_runtime.experiment_design import (
    ArmSchedule,
    ScheduleKind,
    arm_at,
    complete_pairs,
    pairs_needed,
    sign_flip_test,
)

quick = settings(max_examples=60, deadline=None)


@dataclass(frozen=True)
class Arm:
    name: str
    share: float = 1.0


TWO = (Arm("eldr", 0.5), Arm("control", 0.5))


def schedule(kind: ScheduleKind, seed: int = 7, window_seconds: int = 60) -> ArmSchedule:
    return ArmSchedule(seed=seed, window_seconds=window_seconds, washout_seconds=20, kind=kind)


class TestWindows:
    def test_by_hand(self) -> None:
        window = arm_at(schedule(ScheduleKind.SWITCHBACK), TWO, 185.5)
        assert (window.index, window.window_start, window.pair, window.is_washout) == (3, 180, 1, True)
        assert not arm_at(schedule(ScheduleKind.SWITCHBACK), TWO, 200).is_washout
        assert arm_at(schedule(ScheduleKind.SWITCHBACK), TWO, 239.999).index == 3

    def test_a_single_arm_has_every_window_and_no_washout(self) -> None:
        windows = [arm_at(schedule(ScheduleKind.SINGLE), TWO[:1], 60.0 * i) for i in range(50)]
        assert {(window.arm, window.is_washout, window.pair) for window in windows} == {("eldr", False, None)}

    def test_each_pair_of_windows_has_both_arms_in_an_order_drawn_by_seed(self) -> None:
        arms = [arm_at(schedule(ScheduleKind.SWITCHBACK), TWO, 60.0 * i).arm for i in range(2000)]
        pairs = list(zip(arms[::2], arms[1::2], strict=True))
        assert all(set(pair) == {"eldr", "control"} for pair in pairs)
        first = Counter(pair[0] for pair in pairs)
        assert abs(first["eldr"] - 500) < 80  # 5 standard deviations of 15.8
        other = [arm_at(schedule(ScheduleKind.SWITCHBACK, seed=8), TWO, 60.0 * i).arm for i in range(2000)]
        assert other != arms

    def test_a_canary_gets_its_share_of_windows_and_only_gains_as_it_grows(self) -> None:
        def canary_windows(share: float) -> set[int]:
            arms = (Arm("stable", 1 - share), Arm("canary", share))
            return {
                i
                for i in range(2000)
                if arm_at(schedule(ScheduleKind.CANARY), arms, 60.0 * i).arm == "canary"
            }

        assert canary_windows(0) == set()
        assert abs(len(canary_windows(0.1)) - 200) < 70  # 5 standard deviations of 13.4
        assert canary_windows(0.1) < canary_windows(0.3)
        assert len(canary_windows(1)) == 2000

    @quick
    @given(
        kind=st.sampled_from([ScheduleKind.SWITCHBACK, ScheduleKind.CANARY]),
        seed=st.integers(0, 2**53 - 1),
        window_seconds=st.integers(21, 86_400),
        moment=st.floats(0, 4e9),
    )
    def test_one_window_has_one_arm(
        self, kind: ScheduleKind, seed: int, window_seconds: int, moment: float
    ) -> None:
        design = schedule(kind, seed, window_seconds)
        window = arm_at(design, TWO, moment)
        assert window.window_start <= moment < window.window_start + window_seconds
        last = arm_at(design, TWO, window.window_start + window_seconds - 0.5)
        assert (last.index, last.arm) == (window.index, window.arm)
        assert TWO[window.arm_index].name == window.arm

    def test_processes_agree(self) -> None:
        code = (
            "from collections import namedtuple\n"
            "from eldr_runtime.experiment_design import ArmSchedule, ScheduleKind, arm_at\n"
            "Arm = namedtuple('Arm', 'name share')\n"
            "s = ArmSchedule(seed=7, window_seconds=60, washout_seconds=20, kind=ScheduleKind.SWITCHBACK)\n"
            "arms = (Arm('eldr', .5), Arm('control', .5))\n"
            "print([arm_at(s, arms, 60.0 * i).arm_index for i in range(40)])"
        )
        other = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        ours = [arm_at(schedule(ScheduleKind.SWITCHBACK), TWO, 60.0 * i).arm_index for i in range(40)]
        assert other.stdout.strip() == str(ours)

    def test_complete_pairs(self) -> None:
        assert complete_pairs([0, 1, 3, 4, 6, 7, 7, 9, 8]).tolist() == [0, 3, 4]
        assert complete_pairs([]).tolist() == []


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"seed": -1}, "seed"),
        ({"seed": 2**53}, "seed"),
        ({"window_seconds": 0}, "window_seconds"),
        ({"window_seconds": 86_401}, "window_seconds"),
        ({"washout_seconds": 60}, "washout_seconds"),
        ({"washout_seconds": -1}, "washout_seconds"),
    ],
)
def test_refuses_a_schedule(change: dict[str, int], field: str) -> None:
    plain = {"seed": 7, "window_seconds": 60, "washout_seconds": 20, "kind": ScheduleKind.SINGLE}
    with pytest.raises(InvalidConfig) as refused:
        ArmSchedule(**(plain | change))
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("kind", "arms"),
    [
        (ScheduleKind.SINGLE, ()),
        (ScheduleKind.SINGLE, TWO),
        (ScheduleKind.SWITCHBACK, TWO[:1]),
        (ScheduleKind.SWITCHBACK, (Arm("a"), Arm("a"))),
        (ScheduleKind.CANARY, (*TWO, Arm("third", 0))),
        (ScheduleKind.CANARY, (Arm("a", 0.9), Arm("b", 0.2))),
        (ScheduleKind.CANARY, (Arm("a", 1.1), Arm("b", -0.1))),
        (ScheduleKind.CANARY, (Arm("a", math.nan), Arm("b", 0.1))),
    ],
)
def test_refuses_arms_that_do_not_fit_the_schedule(kind: ScheduleKind, arms: tuple[Arm, ...]) -> None:
    with pytest.raises(InvalidConfig):
        arm_at(schedule(kind), arms, 0)


@pytest.mark.parametrize("moment", [-1.0, math.nan, math.inf])
def test_refuses_a_moment(moment: float) -> None:
    with pytest.raises(InvalidValue, match="utc_seconds"):
        arm_at(schedule(ScheduleKind.SWITCHBACK), TWO, moment)


def plain_p_value(ratios: list[float], shift: float) -> float:
    """Walk all sign vectors with plain loops."""
    centred = [ratio - shift for ratio in ratios]
    observed = abs(sum(centred))
    n_as_far = sum(
        abs(sum(sign * each for sign, each in zip(signs, centred, strict=True))) >= observed - 1e-9
        for signs in product((1, -1), repeat=len(ratios))
    )
    return n_as_far / 2 ** len(ratios)


class TestSignFlip:
    def test_by_hand(self) -> None:
        # All of one sign: only the identity and the full flip are as far, 2 of 64.
        result = sign_flip_test(np.array([-0.1, -0.2, -0.3, -0.1, -0.2, -0.3]))
        assert result.p_value == 2 / 64
        assert result.mean == pytest.approx(-0.2)
        assert result.change_percent == pytest.approx(100 * (math.exp(-0.2) - 1))
        assert result.is_conclusive
        assert result.has_effect
        assert result.interval is not None
        assert result.interval[0] < -0.2 < result.interval[1] < 0

    def test_with_8_pairs_the_least_p_value_is_2_in_256(self) -> None:
        assert sign_flip_test(np.full(8, 0.3)).p_value == 2 / 256

    def test_no_effect_by_hand(self) -> None:
        result = sign_flip_test(np.array([1.0, -1, 1, -1, 1, -1]))
        assert (result.mean, result.p_value, result.has_effect) == (0, 1, False)

    @quick
    @given(ratios=st.lists(st.floats(-1, 1).map(lambda x: round(x, 3)), min_size=6, max_size=7))
    def test_equals_a_plain_reference_and_the_interval_is_where_it_turns(self, ratios: list[float]) -> None:
        result = sign_flip_test(np.array(ratios))
        assert result.p_value == pytest.approx(plain_p_value(ratios, 0))
        assert result.interval is not None
        low, high = result.interval
        for shift in (low, high, (low + high) / 2):
            assert plain_p_value(ratios, shift) > 0.05
        assert plain_p_value(ratios, low - 1e-3) <= 0.05
        assert plain_p_value(ratios, high + 1e-3) <= 0.05

    @pytest.mark.parametrize("n_pairs", [0, 1, 5])
    def test_fewer_than_6_pairs_are_inconclusive(self, n_pairs: int) -> None:
        result = sign_flip_test(np.full(n_pairs, -0.5))
        assert (result.p_value, result.interval, result.is_conclusive) == (None, None, False)
        assert not result.has_effect
        assert result.mean == (-0.5 if n_pairs else None)
        assert (result.change_percent is None) == (n_pairs == 0)

    def test_a_confidence_that_the_pairs_cannot_reach_bounds_nothing(self) -> None:
        result = sign_flip_test(np.full(6, -0.5), confidence=0.99)
        assert result.interval == (-math.inf, math.inf)
        assert not result.has_effect

    @pytest.mark.parametrize("n_pairs", [8, 12])
    def test_false_positives_on_null_data(self, n_pairs: int) -> None:
        """Heavy-tailed noise without an effect: at most alpha by design, 4-6 % in 1,000 series."""
        rng = np.random.default_rng(5)
        n_series = 1000
        found = sum(sign_flip_test(rng.standard_t(3, n_pairs)).has_effect for _ in range(n_series))
        assert 0.025 <= found / n_series <= 0.07

    @pytest.mark.parametrize("n_pairs", [8, 20])
    def test_coverage_of_the_interval_and_of_the_sampled_branch(self, n_pairs: int) -> None:
        rng = np.random.default_rng(6)
        n_series = 60
        covered = 0
        for _ in range(n_series):
            interval = sign_flip_test(rng.normal(-0.1, 0.05, n_pairs)).interval
            assert interval is not None
            covered += interval[0] <= -0.1 <= interval[1]
        assert covered / n_series >= 0.9

    def test_many_pairs_are_sampled_by_seed(self) -> None:
        ratios = np.random.default_rng(0).normal(-0.02, 0.05, 30)
        assert sign_flip_test(ratios) == sign_flip_test(ratios)
        one, other = sign_flip_test(ratios, seed=1), sign_flip_test(ratios, seed=2)
        assert one != other
        assert one.p_value == pytest.approx(other.p_value, abs=0.01)

    @pytest.mark.parametrize("ratios", [[math.nan] * 8, [math.inf] + [0.0] * 7, [[0.1] * 8]])
    def test_refuses_ratios(self, ratios: list[float]) -> None:
        with pytest.raises(InvalidValue, match="log_ratios"):
            sign_flip_test(np.array(ratios))

    def test_refuses_fewer_pairs_than_can_ever_tell(self) -> None:
        with pytest.raises(InvalidValue, match="minimum_pairs"):
            sign_flip_test(np.zeros(8), minimum_pairs=5)
        with pytest.raises(InvalidValue, match="confidence"):
            sign_flip_test(np.zeros(8), confidence=1)


class TestPairsNeeded:
    def test_by_hand(self) -> None:
        # (1.95996 + 0.84162)^2 = 7.8489 for an effect of one standard deviation; four times for half.
        assert pairs_needed(0.05, 0.05) == pairs_needed(-0.05, 0.05) == 8
        assert pairs_needed(0.025, 0.05) == 32
        assert pairs_needed(1, 0.05) == 6

    @pytest.mark.parametrize(
        ("effect", "deviation", "power", "field"),
        [
            (0, 1, 0.8, "effect"),
            (math.nan, 1, 0.8, "effect"),
            (1, -1, 0.8, "standard_deviation"),
            (1, 1, 1, "power"),
        ],
    )
    def test_refuses(self, effect: float, deviation: float, power: float, field: str) -> None:
        with pytest.raises(InvalidValue) as refused:
            pairs_needed(effect, deviation, power=power)
        assert refused.value.field == field
