"""Probabilities that sum to top_k, and expert counts that could have come from real top-k picks.

Shapes: rows stand for (request, layer) pairs, `(n_rows, n_experts)`. All of it is ours.
"""

import numpy as np

from eldr_runtime.array_types import Counts, Floats, Floats32, Ints

# Newton on a concave function from below never overshoots; float32 holds no more than 1e-6 of top_k
SOLVER_STEPS = 40
SOLVER_TOLERANCE = 1e-6
# just under the number of tokens, so that rounding up never exceeds it
CAP_SHARE = 1.0 - 1e-7
# expected tokens below which the normal is too crude and the binomial is drawn itself
SMALL_MEAN = 4.0
# below 1 in float32, so that log(1 - p) is finite
LARGEST_PROBABILITY = np.float32(1.0 - 1e-5)


def pick_probabilities(logits: Floats32, top_k: int) -> Floats32:
    """Turn preferences into probabilities that one token picks each expert, summing to top_k.

    `p = a w / (1 + a w)` with `w = exp(logit)` and `a` solved for in each row: the odds of two experts
    keep the ratio the logits give them, and no probability reaches 1.

    Parameters
    ----------
    logits : float32 (..., n_experts)
    top_k : below n_experts

    Returns
    -------
    float32, the shape of `logits`; every row sums to `top_k` within 1e-4

    Examples
    --------
    >>> pick_probabilities(np.zeros((1, 4), np.float32), 2)
    array([[0.5, 0.5, 0.5, 0.5]], dtype=float32)
    """
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True)).reshape(-1, logits.shape[-1])
    scale = (top_k / weights.sum(axis=1, dtype=np.float32))[:, None]
    p = np.empty_like(weights)
    for _ in range(SOLVER_STEPS):
        np.multiply(weights, scale, out=p)
        p /= 1 + p
        total = p.sum(axis=1)
        if np.all(np.abs(total - top_k) <= SOLVER_TOLERANCE * top_k):
            break
        slope = total - np.einsum("ij,ij->i", p, p)
        scale *= (1 + (top_k - total) / slope)[:, None]
    np.minimum(p, LARGEST_PROBABILITY, out=p)
    return np.asarray(p.reshape(logits.shape), dtype=np.float32)


def draw_counts(p: Floats32, n_tokens: Ints, top_k: int, rng: np.random.Generator) -> Counts:
    """Draw how many of a request's tokens picked each expert.

    Approximates independent tokens that pick `top_k` distinct experts each: binomial draws (square-root
    normal ones where the mean is large), scaled to the exact sum, capped, and rounded systematically.
    Whatever the draw, a layer sums to exactly `top_k * n_tokens` and no expert has more than `n_tokens`.

    Parameters
    ----------
    p : float32 (n_requests, n_layers, n_experts), rows summing to `top_k`
    n_tokens : int64 (n_requests,), at least 1

    Returns
    -------
    uint32 (n_requests, n_layers, n_experts)

    Examples
    --------
    >>> p = np.full((1, 2, 4), 0.5, np.float32)
    >>> draw_counts(p, np.array([10]), 2, np.random.default_rng(1)).sum(axis=2)
    array([[20, 20]], dtype=uint64)
    """
    n_requests, n_layers, n_experts = p.shape
    tokens = np.repeat(n_tokens.astype(np.float64), n_layers)[:, None]
    share = p.reshape(-1, n_experts)
    amounts = _noisy_amounts(share, tokens, rng)
    _scale_under_cap(amounts, tokens[:, 0], top_k)
    edges = np.cumsum(amounts, axis=1)
    edges += rng.random((len(edges), 1))
    np.floor(edges, out=edges)
    np.minimum(edges, top_k * tokens, out=edges)
    edges[:, -1:] = top_k * tokens
    counts = np.diff(edges, axis=1, prepend=0.0)
    return counts.astype(np.uint32).reshape(n_requests, n_layers, n_experts)


def _noisy_amounts(share: Floats32, tokens: Floats, rng: np.random.Generator) -> Floats:
    mean = share * tokens.astype(np.float32)
    spread = 1 - share
    root = rng.standard_normal(share.shape, dtype=np.float32)
    root *= np.float32(0.5)
    root *= np.sqrt(spread)
    root += np.sqrt(mean)
    np.maximum(root, 0, out=root)
    root *= root
    root -= spread * np.float32(0.25)
    is_small = mean < SMALL_MEAN
    row_tokens = np.broadcast_to(tokens, share.shape)[is_small].astype(np.int64)
    root[is_small] = rng.binomial(row_tokens, share[is_small])
    # a floor, so that the scaling always has something to scale
    np.maximum(root, mean * np.float32(1e-3), out=root)
    return root.astype(np.float64) + 1e-9


def _scale_under_cap(amounts: Floats, tokens: Floats, top_k: int) -> None:
    """Scale every row to `top_k * tokens` in place, with no entry above (just under) `tokens`."""
    cap = tokens * CAP_SHARE
    target = top_k * tokens
    amounts *= (target / amounts.sum(axis=1))[:, None]
    rows = np.flatnonzero(amounts.max(axis=1) > cap)
    while rows.size:
        part, row_cap = amounts[rows], cap[rows, None]
        is_full = part >= row_cap
        part[is_full] = np.broadcast_to(row_cap, part.shape)[is_full]
        rest = np.where(is_full, 0.0, part).sum(axis=1)
        missing = target[rows] - np.where(is_full, part, 0.0).sum(axis=1)
        part = np.where(is_full, part, part * (missing / rest)[:, None])
        amounts[rows] = part
        rows = rows[np.any((part > row_cap), axis=1)]
