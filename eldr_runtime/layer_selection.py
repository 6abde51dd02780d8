"""Which layers a signature keeps: forward greedy selection by rho."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from eldr_runtime.array_types import Bools, Counts, Floats, Floats32, Ints
from eldr_runtime.errors import InvalidValue
from eldr_runtime.signature_quality import (
    SMALLEST_NORM,
    RankTarget,
    canonical_pairs,
    check_pairs,
    decode_target,
    pair_dots,
    squared_norms,
    sum_of_products,
)

# Bins of equal width between the least and the greatest cosine, for choosing among candidates. Taking the
# values of one bin for ties moved rho by at most 3e-5 on 30,000 pairs of 1,000 drawn requests, where its 95 %
# interval is 0.02 wide, and costs about a third of an exact ranking. The published curve is ranked exactly.
_N_BINS = 1 << 12


# Identity, not equality: comparing arrays with == has no truth value.
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayerSelection:
    """All layers in the order they were taken, and the prefix worth keeping.

    Attributes
    ----------
    order
        Layers, first taken first.
    rho_by_length
        float64 `(n_layers,)`: rho with the first 1, 2, ... layers of `order`.
    n_kept
        Prefix length with the highest rho, the shortest on ties.
    mask
        bool `(n_layers,)`: true for the kept layers.
    """

    order: tuple[int, ...]
    rho_by_length: Floats
    n_kept: int
    mask: Bools


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _LayerParts:
    """What a cosine over any set of layers is summed from, and what it is compared with.

    `target` is the decode side, `centred_ranks` float64 `(n_pairs,)` its ranks less their mean; `dots`
    float32 `(n_layers, n_pairs)`; `squares` float64 `(n_layers, n_requests)`; `first` and `second` int64
    `(n_pairs,)`.
    """

    target: RankTarget
    centred_ranks: Floats
    dots: Floats32
    squares: Floats
    first: Ints
    second: Ints

    def cosines(self, dots: Floats32, squares: Floats) -> Floats32:
        """Turn summed dots `(n_pairs,)`, overwritten, and squares `(n_requests,)` into cosines."""
        inverse = (1 / np.maximum(np.sqrt(squares), SMALLEST_NORM)).astype(np.float32)
        dots *= inverse.take(self.first)
        dots *= inverse.take(self.second)
        return dots

    def binned_correlation(self, cosines: Floats32) -> float:
        """Rank correlation with the decode side, values of one bin taken for ties."""
        n_pairs = len(cosines)
        low, high = cosines.min(), cosines.max()
        if low == high:
            return 0.0
        bins = ((cosines - low) * np.float32((_N_BINS - 1) / (high - low))).astype(np.intp)
        sizes = np.bincount(bins, minlength=_N_BINS).astype(np.float64)
        ranks = np.cumsum(sizes) - (sizes - 1) / 2
        squares = (n_pairs**3 - float((sizes * sizes * sizes).sum())) / 12
        spread = self.target.spread * float(np.sqrt(squares))
        if spread == 0:
            return 0.0
        return sum_of_products(ranks.take(bins), self.centred_ranks) / spread


def select_layers(
    weighted: Floats32,
    decode_counts: Counts,
    pairs: Ints,
    on_step: Callable[[int, int], None] | None = None,
) -> LayerSelection:
    """Order layers by greedy gain in rho, and keep the best prefix.

    Paper arXiv 2607.00466, section on layer selection: at each step the layer whose addition gives the
    highest rho is taken (the lowest on ties) until all are; no early stop.

    Parameters
    ----------
    weighted
        float32 `(n_requests, n_layers, n_experts)`: weighed use, before mask and norm.
    decode_counts
        uint32 `(n_requests, n_layers, n_experts)`.
    pairs
        int64 `(n_pairs, 2)`, at least 2 pairs.
    on_step
        Called with the layers taken so far and their total; what it raises stops the selection.

    Examples
    --------
    >>> import numpy as np
    >>> decode_counts = np.array([[[3, 0], [1, 2]], [[2, 1], [1, 2]], [[0, 3], [1, 2]]], dtype=np.uint32)
    >>> pairs = np.array([[0, 1], [0, 2], [1, 2]])
    >>> select_layers(decode_counts.astype(np.float32), decode_counts, pairs).order
    (0, 1)
    """
    _check(weighted, decode_counts, pairs)
    parts = _layer_parts(weighted, decode_counts, pairs)
    n_layers = weighted.shape[1]
    remaining = list(range(n_layers))
    order: list[int] = []
    curve = np.empty(n_layers)
    dots, squares = np.zeros_like(parts.dots[0]), np.zeros_like(parts.squares[0])
    for step in range(n_layers):
        layer = _best_addition(parts, remaining, dots, squares)
        dots += parts.dots[layer]
        squares += parts.squares[layer]
        curve[step] = parts.target.correlation(parts.cosines(dots.copy(), squares))
        remaining.remove(layer)
        order.append(layer)
        if on_step is not None:
            on_step(step + 1, n_layers)
    n_kept = int(np.argmax(curve)) + 1
    mask = np.zeros(n_layers, dtype=np.bool_)
    mask[order[:n_kept]] = True
    return LayerSelection(order=tuple(order), rho_by_length=curve, n_kept=n_kept, mask=mask)


def _best_addition(parts: _LayerParts, remaining: list[int], dots: Floats32, squares: Floats) -> int:
    """Layer of `remaining` that, added to the sums so far, gives the highest rho; the first on ties."""
    scores = [
        parts.binned_correlation(parts.cosines(dots + parts.dots[layer], squares + parts.squares[layer]))
        for layer in remaining
    ]
    return remaining[int(np.argmax(scores))]


def _layer_parts(weighted: Floats32, decode_counts: Counts, pairs: Ints) -> _LayerParts:
    target = decode_target(decode_counts, pairs)
    ranks = target.doubled_ranks / 2
    n_layers = weighted.shape[1]
    squares = np.stack([squared_norms(weighted[:, layer]) for layer in range(n_layers)])
    pairs = canonical_pairs(weighted, pairs, squares.sum(axis=0))
    dots = np.empty((n_layers, len(pairs)), dtype=np.float32)
    for layer in range(n_layers):
        dots[layer] = pair_dots(weighted[:, layer], pairs)
    first, second = np.ascontiguousarray(pairs.T)
    return _LayerParts(
        target=target,
        centred_ranks=ranks - ranks.mean(),
        dots=dots,
        squares=squares,
        first=first,
        second=second,
    )


def _check(weighted: Floats32, decode_counts: Counts, pairs: Ints) -> None:
    if weighted.ndim != 3 or weighted.dtype != np.float32:
        limit = "float32 (n_requests, n_layers, n_experts)"
        raise InvalidValue(field="weighted", value=f"{weighted.dtype} {weighted.shape}", limit=limit)
    if decode_counts.shape != weighted.shape:
        raise InvalidValue(field="decode_counts shape", value=decode_counts.shape, limit=str(weighted.shape))
    check_pairs(pairs, len(weighted))
