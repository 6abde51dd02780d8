import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from eldr_runtime import expert_use
from eldr_runtime.errors import InvalidValue


def probabilities(n_requests: int = 4) -> st.SearchStrategy[np.ndarray]:
    return arrays(np.float64, (n_requests, 3, 6), elements=st.floats(0.0, 0.999))


class TestExpectedUnion:
    def test_worked_by_hand(self):
        # layer 0: 1 - 0.5 * 0.8 = 0.6 and 1 - 0.5 * 0.2 = 0.9, sum 1.5; layer 1: 1.0 and 0.0
        p = np.array([[[0.5, 0.5], [1.0, 0.0]], [[0.2, 0.8], [1.0, 0.0]]])
        assert expert_use.expected_union_by_layer(p) == pytest.approx([1.5, 1.0])
        assert expert_use.expected_union(p) == pytest.approx(1.25)

    @pytest.mark.parametrize(
        ("top_k", "unions"), [(8, (51.6, 82.4, 111.8, 125.9)), (4, (28.7, 51.0, 81.7, 111.2))]
    )
    def test_random_draws_over_128_experts(self, top_k, unions):
        for batch, union in zip((8, 16, 32, 64), unions, strict=True):
            p = np.full((batch, 2, 128), top_k / 128, dtype=np.float32)
            assert round(expert_use.expected_union(p), 1) == union
            assert round(expert_use.random_union(128, top_k, batch), 1) == union

    @given(probabilities())
    def test_lies_between_the_largest_request_and_the_sum(self, p):
        by_layer = expert_use.expected_union_by_layer(p)
        assert np.all(by_layer >= p.sum(axis=-1).max(axis=0) - 1e-9)
        assert np.all(by_layer <= p.sum(axis=(0, 2)) + 1e-9)

    def test_agrees_with_drawn_picks(self):
        rng = np.random.default_rng(5)
        p = rng.uniform(0, 0.9, size=(5, 2, 7))
        drawn = (rng.random((20_000, *p.shape)) < p).any(axis=1).sum(axis=-1).mean()
        assert expert_use.expected_union(p) == pytest.approx(drawn, abs=0.03)


class TestUnionGrowth:
    @given(probabilities())
    def test_is_the_difference_of_two_unions(self, p):
        log_q = expert_use.log_not_used(p[:-1]).sum(axis=0)
        grown = expert_use.expected_union(p) - expert_use.expected_union(p[:-1])
        assert expert_use.union_growth(log_q, p[-1]) == pytest.approx(grown, abs=1e-9)

    def test_one_value_a_worker(self):
        p = np.array([[0.5, 0.25]])
        log_q = np.log(np.array([[[1.0, 1.0]], [[0.5, 0.0001]]]))
        assert expert_use.union_growth(log_q, p) == pytest.approx([0.75, 0.250025])

    def test_certain_experts_stay_finite(self):
        assert np.all(np.isfinite(expert_use.log_not_used(np.ones((1, 2), dtype=np.float32))))


class TestProbabilities:
    def test_step_probability_by_hand(self):
        p = expert_use.step_probability(np.array([[[2, 0, 4]], [[5, 10, 5]]], np.uint32), np.array([4, 10]))
        assert p.dtype == np.float32
        assert p.tolist() == [[[0.5, 0.0, 1.0]], [[0.5, 1.0, 0.5]]]

    def test_mean_use_pools_tokens_not_requests(self):
        counts = np.array([[[1, 0]], [[0, 9]]], np.uint32)
        assert expert_use.mean_use(counts, np.array([1, 9])) == pytest.approx(np.array([[0.1, 0.9]]))

    def test_shrunk_by_hand(self):
        # (4 + 16 * 0.25) / (4 + 16) and (0 + 16 * 0.75) / 20
        p = expert_use.shrunk_probability(np.array([[4, 0]], np.uint32), 4, np.array([[0.25, 0.75]]))
        assert p == pytest.approx(np.array([[0.4, 0.6]]))

    def test_no_tokens_gives_the_pooled_use(self):
        g = np.array([[0.25, 0.75]], np.float32)
        assert np.array_equal(expert_use.shrunk_probability(np.zeros((1, 2)), 0, g), g)

    @given(arrays(np.int64, (3, 2, 5), elements=st.integers(0, 50)), st.floats(0.1, 200))
    def test_shrunk_lies_between_share_and_mean_and_below_one(self, counts, strength):
        n_tokens = np.full(3, 50)
        g = expert_use.mean_use(counts, n_tokens)
        p = expert_use.shrunk_probability(counts, n_tokens, g, strength)
        share = counts / 50
        assert np.all(p < 1.0)
        assert np.all(p >= np.minimum(share, g) - 2e-6)
        assert np.all(p <= np.maximum(share, g) + 2e-6)

    def test_refusals_name_field_value_and_limit(self):
        with pytest.raises(InvalidValue, match=r"decode_steps is 0\.0; must be at least 1"):
            expert_use.step_probability(np.zeros((1, 2)), 0)
        with pytest.raises(InvalidValue, match=r"decode_steps is 'shape \(3,\)'"):
            expert_use.step_probability(np.zeros((2, 1, 2)), np.array([1, 2, 3]))
        with pytest.raises(InvalidValue, match="n_tokens"):
            expert_use.mean_use(np.zeros((1, 1, 2)), np.array([0]))
        with pytest.raises(InvalidValue, match="n_tokens"):
            expert_use.shrunk_probability(np.zeros((1, 2)), -1, np.zeros((1, 2)))
        with pytest.raises(InvalidValue, match="strength_tokens"):
            expert_use.shrunk_probability(np.zeros((1, 2)), 1, np.zeros((1, 2)), 0.0)
