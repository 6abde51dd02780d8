import math

import numpy as np
import pytest

from eldr_runtime.errors import InvalidConfig, InvalidValue
from eldr_runtime.policies.choice import PolicyName, PolicySettings, checked_similarities
from eldr_runtime.worker_load import PoolView


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"tau": -0.01}, "tau"),
        ({"tau": 2.01}, "tau"),
        ({"tau": math.nan}, "tau"),
        ({"minimum_candidates": 0}, "minimum_candidates"),
        ({"minimum_candidates": 3}, "minimum_candidates"),
        ({"load_cap": 0.99, "policy": PolicyName.ELDR_CAPPED}, "load_cap"),
        ({"load_cap": math.nan, "policy": PolicyName.ELDR_CAPPED}, "load_cap"),
        ({"load_cap": math.inf, "policy": PolicyName.ELDR_CAPPED}, "load_cap"),
        ({"load_cap": 1.25}, "load_cap"),
        ({"policy": "least_regret"}, "policy"),
    ],
)
def test_refuses_a_setting_outside_its_limit(settings: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        PolicySettings(**({"policy": PolicyName.ELDR} | settings))
    assert refused.value.field == field
    assert str(refused.value.value) in str(refused.value)
    assert "must be" in str(refused.value)


def test_limits_are_inclusive_and_only_the_capped_policy_has_a_cap() -> None:
    assert PolicySettings(policy=PolicyName.ELDR, tau=0).tau == 0
    assert PolicySettings(policy=PolicyName.ELDR, tau=2).effective_load_cap is None
    assert PolicySettings(policy=PolicyName.ELDR_CAPPED).effective_load_cap == 1.25
    assert PolicySettings(policy=PolicyName.ELDR_CAPPED, load_cap=1).effective_load_cap == 1


@pytest.mark.parametrize("similarities", [[0.5], [0.5, math.nan], [0.5, math.inf], [-math.inf, math.inf]])
def test_refuses_similarities_that_are_not_one_finite_number_a_candidate(similarities: list[float]) -> None:
    pool = PoolView(worker_ids=("a", "b"), in_flight=np.array([0, 0]))
    with pytest.raises(InvalidValue, match="similarities"):
        checked_similarities(np.array(similarities, dtype=np.float32), pool)
