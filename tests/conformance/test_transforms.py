"""What every signature transform must do, whatever it computes."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from eldr_runtime.errors import InvalidTrace
from eldr_runtime.expert_trace import ExpertTrace, count_topk
from eldr_runtime.model_shape import ModelShape
from eldr_runtime.signature import SignatureTransform, TransformName, fit_signature_transform, usage_of

SHAPE = ModelShape(model="m", n_layers=3, n_experts=6, top_k=2)


def build_trace() -> ExpertTrace:
    rng = np.random.default_rng(7)
    n_tokens = np.array([1, 4, 9, 30, 2])
    appeal = rng.gumbel(size=(5, 30, 3, 6)) + 2 * rng.standard_normal((5, 1, 3, 6))
    topk = np.argsort(-appeal, axis=-1)[..., :2].astype(np.uint8)
    counts = [count_topk(rows[:n], 6) for rows, n in zip(topk, n_tokens, strict=True)]
    logits = appeal.sum(axis=1).astype(np.float32)
    prob = np.exp(appeal) / np.exp(appeal).sum(axis=-1, keepdims=True)
    return ExpertTrace(
        shape=SHAPE,
        prefill_counts=np.stack(counts),
        prompt_tokens=n_tokens,
        covered_tokens=n_tokens,
        gate_prob=prob.sum(axis=1).astype(np.float32),
        gate_logit=logits,
    )


@pytest.fixture(scope="module")
def trace() -> ExpertTrace:
    return build_trace()


@pytest.fixture(params=list(TransformName), ids=str)
def name(request: pytest.FixtureRequest) -> TransformName:
    chosen: TransformName = request.param
    return chosen


@pytest.fixture
def transform(name: TransformName, trace: ExpertTrace) -> SignatureTransform:
    return fit_signature_transform(name, trace)


@pytest.fixture
def usage(name: TransformName, trace: ExpertTrace) -> np.ndarray:
    return usage_of(name, trace)


def test_keeps_every_layer_when_fitted(transform: SignatureTransform, name: TransformName) -> None:
    assert transform.name is name
    assert transform.layer_mask.tolist() == [True] * 3
    assert transform.n_features == 18
    assert transform.weights.dtype == np.float32
    assert transform.weights.shape == (3, 6)


def test_float32_of_unit_norm(transform: SignatureTransform, usage: np.ndarray) -> None:
    signatures = transform.apply(usage)
    assert signatures.dtype == np.float32
    assert signatures.shape == (5, 18)
    assert_allclose(np.linalg.norm(signatures, axis=1), np.ones(5), atol=1e-6)


def test_zero_stays_zero(transform: SignatureTransform, usage: np.ndarray) -> None:
    some_zero = usage.copy()
    some_zero[2] = 0
    signatures = transform.apply(some_zero)
    assert (signatures[2] == 0).all()
    assert_array_equal(signatures[[0, 1, 3, 4]], transform.apply(usage)[[0, 1, 3, 4]])


def test_single_equals_row_of_batch(transform: SignatureTransform, usage: np.ndarray) -> None:
    signatures = transform.apply(usage)
    for row in range(5):
        single = transform.apply(usage[row])
        assert single.shape == (18,)
        assert_array_equal(single, signatures[row])


def test_any_leading_axes(transform: SignatureTransform, usage: np.ndarray) -> None:
    folded = np.stack([usage[:4].reshape(2, 2, 3, 6)])
    assert_array_equal(transform.apply(folded).reshape(4, 18), transform.apply(usage[:4]))
    assert transform.weigh(folded).shape == (1, 2, 2, 3, 6)
    assert transform.apply(usage[:0]).shape == (0, 18)


def test_permuted_experts_permute_the_signature(transform: SignatureTransform, usage: np.ndarray) -> None:
    order = np.array([[3, 1, 5, 0, 2, 4], [0, 1, 2, 5, 4, 3], [5, 4, 3, 2, 1, 0]])
    permuted = replace(transform, weights=np.take_along_axis(transform.weights, order, axis=1))
    found = permuted.apply(np.take_along_axis(usage, order[None], axis=2))
    expected = np.take_along_axis(transform.apply(usage).reshape(5, 3, 6), order[None], axis=2)
    assert_allclose(found, expected.reshape(5, 18), atol=1e-6)


def test_permuted_experts_permute_the_fitted_weights(name: TransformName, trace: ExpertTrace) -> None:
    order = np.array([3, 1, 5, 0, 2, 4])
    gates = {
        field: getattr(trace, field)[..., order] for field in ("prefill_counts", "gate_prob", "gate_logit")
    }
    permuted = fit_signature_transform(name, replace(trace, **gates))
    assert_array_equal(permuted.weights, fit_signature_transform(name, trace).weights[:, order])


def test_mask_reduces_features_and_is_normalised_over_what_is_left(
    transform: SignatureTransform, usage: np.ndarray
) -> None:
    masked = transform.with_mask(np.array([True, False, True]))
    assert masked.n_features == 12
    signatures = masked.apply(usage)
    assert signatures.shape == (5, 12)
    kept = transform.weigh(usage)[:, [0, 2]].reshape(5, 12)
    assert_allclose(signatures, kept / np.linalg.norm(kept, axis=1, keepdims=True), atol=1e-6)
    assert transform.n_features == 18


def test_scaled_use_keeps_its_direction(transform: SignatureTransform, usage: np.ndarray) -> None:
    scaled = (usage * usage.dtype.type(4)).astype(usage.dtype)
    assert_allclose(transform.apply(scaled), transform.apply(usage), atol=1e-6)


def test_deterministic_and_leaves_its_input_alone(
    name: TransformName, transform: SignatureTransform, usage: np.ndarray, trace: ExpertTrace
) -> None:
    before, weights_before = usage.copy(), transform.weights.copy()
    first, weighed = transform.apply(usage), transform.weigh(usage)
    weighed += 1
    assert_array_equal(first, fit_signature_transform(name, trace).apply(usage))
    assert_array_equal(usage, before)
    assert_array_equal(transform.weights, weights_before)


def test_read_only_input_is_accepted(transform: SignatureTransform, usage: np.ndarray) -> None:
    frozen = usage.copy()
    frozen.flags.writeable = False
    assert_array_equal(transform.apply(frozen), transform.apply(usage))


def test_refuses_another_shape(transform: SignatureTransform, usage: np.ndarray) -> None:
    for wrong in (usage[:, :2], usage[..., :5], usage[0, 0], usage[..., None]):
        with pytest.raises(InvalidTrace, match=r"usage shape is .*; must be \(\.\.\., 3, 6\)"):
            transform.apply(wrong)
        with pytest.raises(InvalidTrace, match="usage shape"):
            transform.weigh(wrong)


@pytest.mark.parametrize("dtype", [np.int64, np.uint16, np.float64, np.bool_, "other"])
def test_refuses_another_dtype(
    transform: SignatureTransform, usage: np.ndarray, name: TransformName, dtype: type[np.generic] | str
) -> None:
    other = np.uint32 if name.needs_gates else np.float32
    wrong = usage.astype(other if dtype == "other" else dtype)
    expected = "float32" if name.needs_gates else "uint32"
    with pytest.raises(InvalidTrace, match=f"usage dtype is '{wrong.dtype}'; must be {expected} for {name}"):
        transform.apply(wrong)
    with pytest.raises(InvalidTrace, match="usage dtype"):
        transform.weigh(wrong)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_refuses_what_is_not_finite(transform: SignatureTransform, usage: np.ndarray, value: float) -> None:
    # Counts cannot hold such a value: as floats they are refused for their dtype.
    wrong = usage.astype(np.float32)
    wrong[1, 2, 3] = value
    for method in (transform.apply, transform.weigh):
        with pytest.raises(InvalidTrace, match="usage"):
            method(wrong)


def test_needs_gate_values_exactly_if_it_reads_them(name: TransformName, trace: ExpertTrace) -> None:
    without = replace(trace, gate_prob=None, gate_logit=None)
    if not name.needs_gates:
        assert_array_equal(fit_signature_transform(name, without).weights.shape, (3, 6))
        return
    for refused in (fit_signature_transform, usage_of):
        with pytest.raises(InvalidTrace, match=f"{name} is None; must be present in the trace"):
            refused(name, without)
