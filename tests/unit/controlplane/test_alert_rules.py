from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.alert_rules import (
    RULES,
    AlertRule,
    AlertStatus,
    Reading,
    RuleName,
    Severity,
    advance,
)
from controlplane.domain.alerts import AlertState

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
RULE = AlertRule(name=RuleName.LOAD_IMBALANCE, severity=Severity.WARNING, n_breaches=2, n_clear=3)


def reading(value: float | None, **values: object) -> Reading:
    return Reading(
        rule=RULE.name, value=value, fire_threshold=2.0, clear_threshold=1.5, summary="test", **values
    )


def play(
    values: list[float | None], *, seconds: float = 5, rule: AlertRule = RULE
) -> list[AlertState | None]:
    status: AlertStatus | None = None
    states: list[AlertState | None] = []
    for step, value in enumerate(values):
        if status is not None and status.state is AlertState.RESOLVED:
            status = None
        status = advance(status, rule, reading(value), NOON + timedelta(seconds=step * seconds))
        states.append(None if status is None else status.state)
    return states


def test_it_fires_after_two_breaches_in_a_row_and_is_over_after_three_clear_values() -> None:
    assert play([1.0, 2.1, 2.1, 1.4, 1.4, 1.4]) == [None, "pending", "firing", "firing", "firing", "resolved"]


def test_one_breach_alone_is_forgotten() -> None:
    assert play([2.1, 1.9, 2.1, 1.0]) == ["pending", None, "pending", None]


def test_a_value_between_the_thresholds_neither_fires_nor_resolves() -> None:
    assert play([2.1, 2.1, 1.4, 1.4, 1.8, 1.4, 1.4, 1.4]) == [
        "pending", "firing", "firing", "firing", "firing", "firing", "firing", "resolved",
    ]  # fmt: skip


def test_a_breach_starts_the_count_of_clear_values_anew() -> None:
    assert play([3.0, 3.0, 1.0, 1.0, 3.0, 1.0, 1.0])[-1] == "firing"


def test_no_data_is_a_state_of_its_own_after_a_minute() -> None:
    values = [3.0, 3.0] + [None] * 12
    states = play(values)
    assert states[:13] == ["pending"] + ["firing"] * 12
    assert states[13] == "no_data"


def test_data_again_goes_on_where_it_was() -> None:
    gone = [3.0, 3.0] + [None] * 20
    assert play([*gone, 3.0])[-1] == "firing"
    assert play([*gone, 1.8])[-1] == "firing"
    assert play([*gone, 1.0, 1.0, 1.0])[-3:] == ["firing", "firing", "resolved"]


def test_no_data_for_an_hour_closes_it() -> None:
    assert play([3.0, 3.0, None, None, None], seconds=1799)[2:] == ["no_data", "no_data", "resolved"]


def test_no_data_where_nothing_is_wrong_is_nothing() -> None:
    assert play([None, None, 1.0, None]) == [None] * 4


def test_pending_without_data_is_forgotten() -> None:
    assert play([3.0, None, None], seconds=40) == ["pending", "pending", None]


def test_low_values_are_bad_where_the_reading_says_so() -> None:
    low = Reading(
        rule=RuleName.FIT_DEGRADATION,
        value=0.4,
        fire_threshold=0.5,
        clear_threshold=0.5,
        summary="t",
        is_low_bad=True,
    )
    assert (low.is_breach, low.is_clear) == (True, False)
    at = Reading(
        rule=RuleName.FIT_DEGRADATION,
        value=0.5,
        fire_threshold=0.5,
        clear_threshold=0.5,
        summary="t",
        is_low_bad=True,
    )
    assert (at.is_breach, at.is_clear) == (False, True)


@given(st.lists(st.one_of(st.none(), st.floats(0, 4)), max_size=30))
def test_it_never_fires_without_two_breaches_in_a_row_before(values: list[float | None]) -> None:
    states = play(values)
    for step, state in enumerate(states):
        before = states[step - 1] if step else None
        if state == "firing" and before not in ("firing", "no_data"):
            seen = [value for value in values[: step + 1] if value is not None]
            assert seen[-2] > 2.0
            assert seen[-1] > 2.0


def test_every_rule_needs_two_breaches_and_has_its_runbook() -> None:
    repository = Path(__file__).parents[3]
    assert set(RULES) == set(RuleName)
    for rule in RULES.values():
        assert rule.n_breaches >= 2
        assert (repository / rule.runbook).is_file(), rule.runbook


@pytest.mark.parametrize("name", list(RuleName))
def test_runbooks_say_what_it_means_and_what_to_do(name: RuleName) -> None:
    text = (Path(__file__).parents[3] / RULES[name].runbook).read_text()
    for heading in ("## What it means", "## What to look at", "## What to do"):
        assert heading in text
    assert 400 < len(text) < 4000
