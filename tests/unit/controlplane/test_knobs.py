import math

import pytest

from controlplane.domain.pages import to_page
from controlplane.domain.reasons import check_reason
from controlplane.domain.routing_settings import FIRST_SETTINGS, POLICIES, Knobs
from eldr_runtime.errors import InvalidValue
from eldr_runtime.policies.choice import PolicySettings


def knobs(**changes: object) -> Knobs:
    values = {"policy": "eldr", "tau": 0.1, "load_cap": None, "control_share": 0.0}
    return Knobs(**values | changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("tau", [0, 0.1, 2])
def test_tau_within_its_limits(tau: float) -> None:
    assert knobs(tau=tau).tau == tau


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tau", -1e-9), ("tau", 2.0001), ("tau", math.nan), ("tau", math.inf),
        ("load_cap", 0.99), ("load_cap", math.nan), ("load_cap", math.inf),
        ("control_share", 0.5001), ("control_share", -0.1), ("control_share", math.nan),
        ("policy", "domain"), ("policy", "best"),
    ],
)  # fmt: skip
def test_outside_its_limits_a_knob_names_itself(field: str, value: object) -> None:
    with pytest.raises(InvalidValue) as caught:
        knobs(**{field: value})
    assert caught.value.field == field


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("load_cap", [None, 1.0, 3.0])
def test_every_combination_is_one_a_router_takes(policy: str, load_cap: float | None) -> None:
    settings = knobs(policy=policy, load_cap=load_cap).to_policy()
    assert isinstance(settings, PolicySettings)
    if policy == "eldr_capped":
        assert settings.load_cap == (1000.0 if load_cap is None else load_cap)
    else:
        assert settings.load_cap is None


def test_the_first_settings_are_the_capped_policy_at_the_published_tau() -> None:
    assert Knobs(policy="eldr_capped", tau=0.1, load_cap=1.25, control_share=0.0) == FIRST_SETTINGS


@pytest.mark.parametrize("reason", ["", "   ", "x" * 1001])
def test_a_reason_is_a_text(reason: str) -> None:
    with pytest.raises(InvalidValue, match="reason"):
        check_reason(reason)
    assert check_reason("  why not ") == "why not"


def test_a_page_knows_whether_there_is_more() -> None:
    assert to_page([1, 2, 3], 2, str).items == (1, 2)
    assert to_page([1, 2, 3], 2, str).next_cursor == "2"
    assert to_page([1, 2], 2, str).next_cursor is None
    assert to_page([], 2, str).items == ()
