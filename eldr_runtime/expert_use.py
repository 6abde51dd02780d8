"""Probability that a decode step uses an expert, and the expected number of active experts.

Axis names: `n_requests, n_layers, n_experts, n_workers`. A request with probabilities `p` is taken to draw
its experts independently of the other requests of the batch, so the chance that nobody in a batch uses
expert e is the product of `1 - p[e]`.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eldr_runtime.array_types import Floats, Floats32
from eldr_runtime.errors import InvalidValue

DEFAULT_STRENGTH_TOKENS = 16.0
# keeps log(1 - p) finite, and joins and leaves exact inverses of each other
HIGHEST_PROBABILITY = 1.0 - 1e-6


def step_probability(decode_counts: ArrayLike, decode_steps: ArrayLike) -> Floats32:
    """Share of a request's decode steps that used each expert, unshrunk.

    Parameters
    ----------
    decode_counts : uint32 (n_requests, n_layers, n_experts) or (n_layers, n_experts)
    decode_steps : int64 (n_requests,) or scalar, each at least 1

    Returns
    -------
    float32, the shape of `decode_counts`

    Examples
    --------
    >>> step_probability([[3, 1, 0, 4]], 4)
    array([[0.75, 0.25, 0.  , 1.  ]], dtype=float32)
    """
    counts, steps = _counts_and_tokens(decode_counts, decode_steps, "decode_steps")
    if np.any(steps < 1):
        raise InvalidValue(field="decode_steps", value=float(np.min(steps)), limit="at least 1")
    return (counts / steps).astype(np.float32)


def mean_use(counts: ArrayLike, n_tokens: ArrayLike) -> Floats32:
    """Pooled usage of each expert a token: all counts over all tokens; sums to top_k in every layer.

    Parameters
    ----------
    counts : uint32 (n_requests, n_layers, n_experts)
    n_tokens : int64 (n_requests,), at least one token in all

    Returns
    -------
    float32 (n_layers, n_experts)

    Examples
    --------
    >>> mean_use([[[2, 0]], [[1, 1]]], [2, 2])
    array([[0.75, 0.25]], dtype=float32)
    """
    totals = np.asarray(counts).sum(axis=0, dtype=np.float64)
    tokens = float(np.sum(np.asarray(n_tokens, dtype=np.float64)))
    if tokens < 1:
        raise InvalidValue(field="n_tokens", value=tokens, limit="at least 1 token in all")
    return np.asarray(totals / tokens, dtype=np.float32)


def shrunk_probability(
    counts: ArrayLike,
    n_tokens: ArrayLike,
    mean_use: ArrayLike,
    strength_tokens: float = DEFAULT_STRENGTH_TOKENS,
) -> Floats32:
    """Probability that one step of a request uses each expert, shrunk towards the pooled usage (ours).

    `p = (c + strength * g) / (n + strength)`. A request without tokens gets the pooled usage itself.

    Parameters
    ----------
    counts : uint32 (n_layers, n_experts), or with leading request axes
    n_tokens : int64 scalar, or one a request
    mean_use : float32 (n_layers, n_experts), see :func:`mean_use`
    strength_tokens : weight of the pooled usage, in tokens

    Returns
    -------
    float32, the shape of `counts`, at most `HIGHEST_PROBABILITY`

    Examples
    --------
    >>> shrunk_probability([[16, 0]], 16, [[0.5, 0.5]])
    array([[0.75, 0.25]], dtype=float32)
    """
    if not strength_tokens > 0:
        raise InvalidValue(field="strength_tokens", value=strength_tokens, limit="above 0")
    counts_f, tokens = _counts_and_tokens(counts, n_tokens, "n_tokens")
    if np.any(tokens < 0):
        raise InvalidValue(field="n_tokens", value=float(np.min(tokens)), limit="at least 0")
    prior = strength_tokens * np.asarray(mean_use, dtype=np.float64)
    p = (counts_f + prior) / (tokens + strength_tokens)
    return np.minimum(p, HIGHEST_PROBABILITY).astype(np.float32)


def expected_union_by_layer(p: NDArray[np.floating]) -> Floats:
    """Return the expected number of distinct experts a batch activates in each layer.

    Parameters
    ----------
    p : float (n_requests, n_layers, n_experts), one decode step of every request of the batch

    Returns
    -------
    float64 (n_layers,)
    """
    unused = np.multiply.reduce(1 - p, axis=0)
    return np.asarray(p.shape[-1] - unused.sum(axis=-1, dtype=np.float64), dtype=np.float64)


def expected_union(p: NDArray[np.floating]) -> float:
    """Return the expected number of distinct experts a batch activates, mean over layers.

    Examples
    --------
    >>> expected_union(np.array([[[0.5, 0.5, 1.0]], [[0.5, 0.0, 0.5]]]))
    2.25
    """
    return float(expected_union_by_layer(p).mean())


def log_not_used(p: NDArray[np.floating]) -> Floats:
    """`log(1 - p)` in float64, finite: a join adds it to a worker's `log_q`, a leave takes it away."""
    return np.log1p(-np.minimum(p.astype(np.float64), HIGHEST_PROBABILITY))


def union_growth(log_q: NDArray[np.floating], p: NDArray[np.floating]) -> Floats:
    """Return the expected growth of the mean union of each worker if a request joins it (ours).

    Parameters
    ----------
    log_q : float (n_workers, n_layers, n_experts) or (n_layers, n_experts); sum of :func:`log_not_used`
    p : float (n_layers, n_experts) of the request

    Returns
    -------
    float64 (n_workers,), or () for one worker
    """
    n_layers = p.shape[0]
    q = np.exp(log_q).reshape(*log_q.shape[:-2], -1)
    return np.asarray(q @ p.reshape(-1) / n_layers, dtype=np.float64)


def random_union(n_experts: int, top_k: int, batch: int) -> float:
    """Return the expected union of `batch` tokens that each draw `top_k` of `n_experts` at random.

    Examples
    --------
    >>> round(random_union(128, 8, 16), 1)
    82.4
    """
    return n_experts * (1.0 - (1.0 - top_k / n_experts) ** batch)


def _counts_and_tokens(counts: ArrayLike, n_tokens: ArrayLike, field: str) -> tuple[Floats, Floats]:
    counts_f = np.asarray(counts, dtype=np.float64)
    tokens = np.asarray(n_tokens, dtype=np.float64)
    if counts_f.ndim < 2 or tokens.shape not in ((), counts_f.shape[:-2]):
        limit = f"one a request, shape {counts_f.shape[:-2]}, or a scalar"
        raise InvalidValue(field=field, value=f"shape {tokens.shape}", limit=limit)
    return counts_f, tokens[..., np.newaxis, np.newaxis]
