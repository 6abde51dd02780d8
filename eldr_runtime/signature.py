"""Expert signatures: the six transforms from a request's expert use to a unit vector."""

from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from eldr_runtime.array_types import Bools, Counts, Floats32
from eldr_runtime.errors import InvalidTrace, InvalidVersion
from eldr_runtime.expert_trace import ExpertTrace

SMALLEST_NORM = 1e-9
# An inverse document frequency stays below 50; with counts of 32 bits, products stay finite in float32.
LARGEST_WEIGHT = 1e6
# Rows weighed and normalised at a time: 256 x 48 x 128 float32 is 6 MiB, so 100,000 requests need no
# second copy of their 2.4 GB.
_ROWS_AT_ONCE = 256


class TransformName(StrEnum):
    """The transforms the paper compares (arXiv 2607.00466, Fig. 7); `count_idf` is its choice."""

    COUNT_IDF = "count_idf"
    COUNT = "count"
    SQRT_COUNT = "sqrt_count"
    GATE_PROB = "gate_prob"
    GATE_LOGIT = "gate_logit"
    BINARY = "binary"

    @property
    def needs_gates(self) -> bool:
        """Whether the transform reads gate values instead of counts."""
        return self in (TransformName.GATE_PROB, TransformName.GATE_LOGIT)


# Identity, not equality: comparing arrays with == has no truth value.
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SignatureTransform:
    """A fitted transform: frozen weights, and the layers it keeps.

    Attributes
    ----------
    name
        Which of the six.
    weights
        float32 `(n_layers, n_experts)`: inverse document frequency for `count_idf`, ones otherwise.
    layer_mask
        bool `(n_layers,)`: layers kept, at least one.

    Examples
    --------
    >>> import numpy as np
    >>> weights = np.array([[1, 1], [1, 1]], dtype=np.float32)
    >>> keep_first = np.array([True, False])
    >>> transform = SignatureTransform(name=TransformName.COUNT, weights=weights, layer_mask=keep_first)
    >>> transform.apply(np.array([[3, 4], [9, 9]], dtype=np.uint32))
    array([0.6, 0.8], dtype=float32)
    """

    name: TransformName
    weights: Floats32
    layer_mask: Bools

    def __post_init__(self) -> None:
        _check_array("weights", self.weights, np.float32, n_axes=2)
        is_bad = ~((self.weights >= 0) & (self.weights <= LARGEST_WEIGHT))
        if is_bad.any():
            limit = f"from 0 to {LARGEST_WEIGHT:g}"
            raise InvalidVersion(field="weights", value=float(self.weights[is_bad][0]), limit=limit)
        _check_array("layer_mask", self.layer_mask, np.bool_, n_axes=1)
        n_layers = self.weights.shape[0]
        if self.layer_mask.shape != (n_layers,):
            raise InvalidVersion(
                field="layer_mask shape", value=self.layer_mask.shape, limit=f"({n_layers},)"
            )
        if not self.layer_mask.any():
            raise InvalidVersion(field="layers kept", value=0, limit="at least 1")

    @property
    def n_features(self) -> int:
        """Length of a signature: kept layers times experts."""
        return int(np.count_nonzero(self.layer_mask)) * int(self.weights.shape[1])

    def with_mask(self, mask: Bools) -> "SignatureTransform":
        """Return the same transform, keeping the layers where `mask`, bool `(n_layers,)`, is true."""
        return replace(self, layer_mask=mask)

    def weigh(self, usage: Counts | Floats32) -> Floats32:
        """Weigh expert use, before mask and norm.

        Parameters
        ----------
        usage
            `(..., n_layers, n_experts)`: uint32 counts, or float32 for the gate transforms.

        Returns
        -------
        float32 `(..., n_layers, n_experts)`, a new array.

        Raises
        ------
        InvalidTrace
            Wrong shape or dtype, or a value that is not finite.
        """
        self._check_usage(usage)
        return self._weigh(usage)

    def apply(self, usage: Counts | Floats32) -> Floats32:
        """Make signatures: weigh, keep the masked layers, divide by one L2 norm over all of them.

        Parameters
        ----------
        usage
            `(..., n_layers, n_experts)`: uint32 counts, or float32 for the gate transforms.

        Returns
        -------
        float32 `(..., n_features)` of unit norm; use that weighs nothing stays zero.

        Raises
        ------
        InvalidTrace
            Wrong shape or dtype, or a value that is not finite.
        """
        self._check_usage(usage)
        rows = usage.reshape(-1, *self.weights.shape)
        signatures = np.empty((len(rows), self.n_features), dtype=np.float32)
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            part = slice(start, start + _ROWS_AT_ONCE)
            weighed = self._weigh(rows[part])[:, self.layer_mask].reshape(-1, self.n_features)
            norms = np.sqrt(np.square(weighed, dtype=np.float64).sum(axis=1))
            scale = 1 / np.maximum(norms, SMALLEST_NORM)
            np.multiply(weighed, scale[:, None], out=signatures[part], casting="same_kind")
        return signatures.reshape(*usage.shape[:-2], self.n_features)

    def _weigh(self, usage: Counts | Floats32) -> Floats32:
        if self.name is TransformName.BINARY:
            return (usage > 0) * self.weights
        # uint32 times float32 would be float64; counts below 2**24 are exact in float32.
        weighed = usage.astype(np.float32)
        if self.name is TransformName.SQRT_COUNT:
            np.sqrt(weighed, out=weighed)
        weighed *= self.weights
        return weighed

    def _check_usage(self, usage: Counts | Floats32) -> None:
        expected = np.dtype(np.float32 if self.name.needs_gates else np.uint32)
        if usage.dtype != expected:
            limit = f"{expected.name} for {self.name}"
            raise InvalidTrace(field="usage dtype", value=str(usage.dtype), limit=limit)
        if usage.shape[-2:] != self.weights.shape:
            limit = f"(..., {self.weights.shape[0]}, {self.weights.shape[1]})"
            raise InvalidTrace(field="usage shape", value=usage.shape, limit=limit)
        if self.name.needs_gates and not np.isfinite(usage).all():
            raise InvalidTrace(field="usage", value="NaN or infinite", limit="finite")


def fit_signature_transform(name: TransformName, trace: ExpertTrace) -> SignatureTransform:
    """Fit the weights of a transform on a trace; every layer is kept.

    Raises
    ------
    InvalidTrace
        If the transform needs gate values and the trace has none.
    """
    usage_of(name, trace)
    if name is TransformName.COUNT_IDF:
        weights = inverse_document_frequency(trace.prefill_counts)
    else:
        weights = np.ones(trace.shape.counts_shape, dtype=np.float32)
    return SignatureTransform(
        name=name, weights=weights, layer_mask=np.ones(trace.shape.n_layers, dtype=np.bool_)
    )


def usage_of(name: TransformName, trace: ExpertTrace) -> Counts | Floats32:
    """Pick the array of a trace that a transform reads.

    Returns
    -------
    uint32 or, for the gate transforms, float32 `(n_requests, n_layers, n_experts)`; not a copy.

    Raises
    ------
    InvalidTrace
        If the transform needs gate values and the trace has none.
    """
    if not name.needs_gates:
        return trace.prefill_counts
    usage = trace.gate_prob if name is TransformName.GATE_PROB else trace.gate_logit
    if usage is None:
        raise InvalidTrace(field=str(name), value=None, limit=f"present in the trace for transform {name}")
    return usage


def inverse_document_frequency(counts: Counts) -> Floats32:
    """Weigh each expert by how few requests use it: `ln((N + 1) / (df + 1))`.

    The document is the request and `df` the requests with a count above 0 (paper arXiv 2607.00466, section
    on expert signatures). An expert every request uses weighs 0.

    Parameters
    ----------
    counts
        uint32 `(n_requests, n_layers, n_experts)`.

    Returns
    -------
    float32 `(n_layers, n_experts)`.

    Examples
    --------
    >>> import numpy as np
    >>> inverse_document_frequency(np.array([[[2, 0]], [[1, 1]]], dtype=np.uint32))
    array([[0.       , 0.4054651]], dtype=float32)
    """
    n_requests = counts.shape[0]
    n_using = np.count_nonzero(counts, axis=0)
    weights: Floats32 = np.log((n_requests + 1) / (n_using + 1)).astype(np.float32)
    return weights


def _check_array(field: str, array: NDArray[np.generic], dtype: type[np.generic], *, n_axes: int) -> None:
    if array.dtype != dtype or array.ndim != n_axes:
        limit = f"{np.dtype(dtype).name} with {n_axes} axes"
        raise InvalidVersion(field=field, value=f"{array.dtype} {array.shape}", limit=limit)
