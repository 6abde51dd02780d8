import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eldr_runtime.errors import InvalidValue
from eldr_runtime.simulated_fleet.count_draws import draw_counts


@given(n_tokens=st.integers(1, 300), seed=st.integers(0, 2**32 - 1))
def test_drawn_counts_sum_to_top_k_each_step_and_no_expert_twice_in_a_step(n_tokens: int, seed: int) -> None:
    p = np.array([[1.0, 0.6, 0.3, 0.1], [0.5, 0.5, 0.5, 0.5]], dtype=np.float32)
    counts = draw_counts(p, n_tokens, 2, np.random.default_rng(seed))
    assert (counts.sum(axis=1) == 2 * n_tokens).all()
    assert counts.max() <= n_tokens
    assert counts[0, 0] == n_tokens


def test_drawn_counts_have_the_mean_and_the_spread_of_independent_steps() -> None:
    rng = np.random.default_rng(5)
    p = np.array([[0.9, 0.703, 0.297, 0.1]], dtype=np.float32)
    draws = np.stack([draw_counts(p, 100, 2, rng)[0] for _ in range(2000)]).astype(np.float64)
    standard_error = np.sqrt(100 * p[0] * (1 - p[0]) / 2000)
    assert (np.abs(draws.mean(axis=0) - 100 * p[0]) < 4.5 * standard_error).all()
    np.testing.assert_allclose(draws.var(axis=0), 100 * p[0] * (1 - p[0]), rtol=0.15)


def test_drawing_no_tokens_is_refused() -> None:
    with pytest.raises(InvalidValue, match="n_tokens is 0"):
        draw_counts(np.ones((1, 2), dtype=np.float32), 0, 2, np.random.default_rng(1))
