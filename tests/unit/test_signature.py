from math import log, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from eldr_runtime.errors import InvalidTrace, InvalidVersion
from eldr_runtime.expert_trace import ExpertTrace
from eldr_runtime.model_shape import ModelShape
from eldr_runtime.signature import (
    SignatureTransform,
    TransformName,
    fit_signature_transform,
    inverse_document_frequency,
    usage_of,
)

# Three requests, 2 layers, 3 experts, top-1: each layer of a request sums to its 25, 5 and 1 tokens.
COUNTS = np.array(
    [
        [[9, 16, 0], [25, 0, 0]],
        [[0, 4, 1], [5, 0, 0]],
        [[0, 1, 0], [0, 0, 1]],
    ],
    dtype=np.uint32,
)
TOKENS = np.array([25, 5, 1])
GATE_PROB = np.array(
    [
        [[3, 0, 4], [0, 0, 0]],
        [[0, 0, 0], [0, 0, 0]],
        [[0.5, 0.5, 0], [0.5, 0, 0.5]],
    ],
    dtype=np.float32,
)


def make_trace(*, with_gates: bool = True) -> ExpertTrace:
    return ExpertTrace(
        shape=ModelShape(model="tiny", n_layers=2, n_experts=3, top_k=1),
        prefill_counts=COUNTS,
        prompt_tokens=TOKENS,
        covered_tokens=TOKENS,
        gate_prob=GATE_PROB if with_gates else None,
        gate_logit=-GATE_PROB if with_gates else None,
    )


def ones_transform(name: TransformName = TransformName.COUNT) -> SignatureTransform:
    return fit_signature_transform(name, make_trace())


class TestInverseDocumentFrequency:
    def test_by_hand(self) -> None:
        # df: layer 0 = 1, 3, 1; layer 1 = 2, 0, 1; N + 1 = 4.
        expected = [[log(4 / 2), 0, log(4 / 2)], [log(4 / 3), log(4 / 1), log(4 / 2)]]
        weights = inverse_document_frequency(COUNTS)
        assert weights.dtype == np.float32
        assert_allclose(weights, expected, rtol=1e-6)

    def test_only_presence_counts(self) -> None:
        assert_array_equal(inverse_document_frequency(COUNTS * 7), inverse_document_frequency(COUNTS))


class TestSignaturesByHand:
    def test_count_idf(self) -> None:
        # Request 1: expert 1 of layer 0 weighs 0, so 1 ln 2 and 5 ln(4/3) remain.
        kept = np.array([0, 0, log(2), 5 * log(4 / 3), 0, 0])
        signature = fit_signature_transform(TransformName.COUNT_IDF, make_trace()).apply(COUNTS[1])
        assert_allclose(signature, kept / sqrt(log(2) ** 2 + (5 * log(4 / 3)) ** 2), rtol=1e-6)

    def test_count(self) -> None:
        signature = ones_transform().apply(COUNTS[1])
        assert_allclose(signature, np.array([0, 4, 1, 5, 0, 0]) / sqrt(42), rtol=1e-6)

    def test_sqrt_count(self) -> None:
        signature = ones_transform(TransformName.SQRT_COUNT).apply(COUNTS[0])
        assert_allclose(signature, np.array([3, 4, 0, 5, 0, 0]) / sqrt(50), rtol=1e-6)

    def test_binary(self) -> None:
        signature = ones_transform(TransformName.BINARY).apply(COUNTS[1])
        assert_allclose(signature, np.array([0, 1, 1, 1, 0, 0]) / sqrt(3), rtol=1e-6)

    def test_gate_prob(self) -> None:
        signature = ones_transform(TransformName.GATE_PROB).apply(GATE_PROB[0])
        assert_allclose(signature, [0.6, 0, 0.8, 0, 0, 0], rtol=1e-6)

    def test_gate_logit_keeps_its_sign(self) -> None:
        signature = ones_transform(TransformName.GATE_LOGIT).apply(-GATE_PROB[0])
        assert_allclose(signature, [-0.6, 0, -0.8, 0, 0, 0], rtol=1e-6)

    def test_one_norm_over_the_kept_layers_only(self) -> None:
        transform = ones_transform().with_mask(np.array([True, False]))
        assert transform.n_features == 3
        assert_allclose(transform.apply(COUNTS[1]), np.array([0, 4, 1]) / sqrt(17), rtol=1e-6)

    def test_weigh_is_before_mask_and_norm(self) -> None:
        transform = fit_signature_transform(TransformName.COUNT_IDF, make_trace())
        weighed = transform.with_mask(np.array([True, False])).weigh(COUNTS)
        assert weighed.dtype == np.float32
        assert_allclose(weighed, COUNTS * inverse_document_frequency(COUNTS), rtol=1e-6)


def test_many_rows_equal_one_by_one() -> None:
    # More rows than are processed at a time.
    counts = np.random.default_rng(1).integers(0, 50, size=(600, 2, 3)).astype(np.uint32)
    transform = fit_signature_transform(TransformName.COUNT_IDF, make_trace())
    signatures = transform.apply(counts)
    assert_array_equal(signatures, np.stack([transform.apply(row) for row in counts]))


def test_counts_beyond_16_bits_keep_unit_norm() -> None:
    counts = np.full((2, 3), 4_000_000_000, dtype=np.uint32)
    assert_allclose(np.linalg.norm(ones_transform().apply(counts)), 1, rtol=1e-6)


@settings(deadline=None)
@given(seed=st.integers(0, 2**32 - 1), scale=st.integers(1, 85_000))
def test_norm_and_permutation(seed: int, scale: int) -> None:
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, scale + 1, size=(5, 2, 4), dtype=np.uint32)
    weights = rng.random((2, 4), dtype=np.float32)
    mask = np.array([True, True])
    transform = SignatureTransform(name=TransformName.COUNT_IDF, weights=weights, layer_mask=mask)
    signatures = transform.apply(counts)
    norms = np.linalg.norm(signatures, axis=1)
    has_use = transform.weigh(counts).any(axis=(1, 2))
    assert_allclose(norms, has_use.astype(float), atol=1e-6)
    order = rng.permutation(4)
    permuted = SignatureTransform(name=transform.name, weights=weights[:, order], layer_mask=mask)
    expected = signatures.reshape(5, 2, 4)[..., order].reshape(5, 8)
    assert_allclose(permuted.apply(counts[..., order]), expected, atol=1e-6)


class TestRefusals:
    def test_usage_of_missing_gates(self) -> None:
        with pytest.raises(InvalidTrace, match="gate_prob is None; must be present in the trace"):
            usage_of(TransformName.GATE_PROB, make_trace(with_gates=False))

    @pytest.mark.parametrize(
        ("weights", "mask", "message"),
        [
            (np.ones((2, 3)), [True, True], "weights is 'float64 .*; must be float32 with 2 axes"),
            (np.full((2, 3), np.nan, np.float32), [True, True], r"weights is nan; must be from 0 to 1e\+06"),
            (np.full((2, 3), -1, np.float32), [True, True], "weights is -1.0; must be from 0"),
            (np.full((2, 3), 1e7, np.float32), [True, True], "weights is 10000000.0; must be from 0"),
            (np.full((2, 3), np.inf, np.float32), [True, True], "weights is inf; must be from 0"),
            (np.ones((2, 3), np.float32), [True], r"layer_mask shape is \(1,\); must be \(2,\)"),
            (np.ones((2, 3), np.float32), [1, 1], "layer_mask is 'int64"),
            (np.ones((2, 3), np.float32), [False, False], "layers kept is 0; must be at least 1"),
        ],
    )
    def test_bad_weights_and_masks(self, weights: np.ndarray, mask: list[bool], message: str) -> None:
        with pytest.raises(InvalidVersion, match=message):
            SignatureTransform(name=TransformName.COUNT, weights=weights, layer_mask=np.array(mask))
