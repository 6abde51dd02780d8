import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eldr_runtime.simulation.expert_draws import draw_counts, pick_probabilities


class TestPickProbabilities:
    def test_worked_by_hand(self):
        # the odds keep the ratio of the weights 2 : 1 : 1, and the probabilities sum to 1
        p = pick_probabilities(np.log(np.array([[2.0, 1.0, 1.0]], np.float32)), 1)[0].astype(float)
        odds = p / (1 - p)
        assert odds[0] / odds[1] == pytest.approx(2.0, rel=1e-5)
        assert odds[1] == pytest.approx(odds[2])
        assert p.sum() == pytest.approx(1.0)

    def test_equal_preferences_share_equally(self):
        p = pick_probabilities(np.zeros((2, 8), np.float32), 6)
        assert p == pytest.approx(np.full((2, 8), 0.75))

    @given(st.integers(2, 40), st.data(), st.floats(0.0, 6.0), st.integers(0, 1000))
    def test_sums_to_top_k_and_stays_below_one(self, n_experts, data, scale, seed):
        top_k = data.draw(st.integers(1, n_experts - 1))
        rng = np.random.default_rng(seed)
        p = pick_probabilities((scale * rng.standard_normal((3, 2, n_experts))).astype(np.float32), top_k)
        assert p.shape == (3, 2, n_experts)
        assert p.sum(axis=-1, dtype=float) == pytest.approx(np.full((3, 2), top_k), abs=1e-4 * n_experts)
        assert p.min() >= 0
        assert p.max() < 1

    def test_a_stronger_preference_is_picked_more_often(self):
        logits = np.sort(np.random.default_rng(2).standard_normal((4, 30)).astype(np.float32), axis=1)
        assert np.all(np.diff(pick_probabilities(logits, 5), axis=1) >= 0)


class TestDrawCounts:
    @settings(max_examples=60)
    @given(st.integers(2, 20), st.data(), st.floats(0.0, 6.0), st.integers(1, 3000), st.integers(0, 1000))
    def test_could_have_come_from_real_picks(self, n_experts, data, scale, n_tokens, seed):
        top_k = data.draw(st.integers(1, n_experts - 1))
        rng = np.random.default_rng(seed)
        p = pick_probabilities((scale * rng.standard_normal((4, 2, n_experts))).astype(np.float32), top_k)
        tokens = np.array([1, n_tokens, 7, n_tokens])
        counts = draw_counts(p, tokens, top_k, rng)
        assert counts.dtype == np.uint32
        assert np.array_equal(counts.sum(axis=2), np.repeat(top_k * tokens[:, None], 2, axis=1))
        assert np.all(counts.max(axis=(1, 2)) <= tokens)

    @pytest.mark.parametrize("n_tokens", [1, 10, 1000])
    def test_mean_and_variance_are_nearly_binomial(self, n_tokens):
        rng = np.random.default_rng(3)
        p = pick_probabilities((1.5 * rng.standard_normal((1, 4, 64))).astype(np.float32), 6)
        counts = draw_counts(np.repeat(p, 3000, axis=0), np.full(3000, n_tokens), 6, rng)
        flat = p[0].ravel().astype(float)
        mean, variance = counts.mean(axis=0).ravel() / n_tokens, counts.var(axis=0).ravel() / n_tokens
        for low, high in ((0.0, 0.03), (0.03, 0.1), (0.1, 0.5)):
            part = (flat >= low) & (flat < high)
            assert mean[part].mean() == pytest.approx(flat[part].mean(), rel=0.04)
            assert variance[part].mean() == pytest.approx((flat * (1 - flat))[part].mean(), rel=0.15)
