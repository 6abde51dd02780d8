"""Assignment of rows to columns at the least total cost under an equal capacity.

Both solutions start from column prices: adding a price to a column changes no comparison between
assignments that fill every column, and at the right prices almost every row already sits at its cheapest
column. The prices are the dual of the problem, found by Newton steps on its smoothed form. What is left to
do is then small:

- `assign_by_columns`, as published: `scipy.optimize.linear_sum_assignment` with each column repeated. Memory
  and time grow with the square of the rows.
- `assign_by_transfers` (ours): rows move from crowded to free columns along shortest paths in the graph of
  the columns, which keeps the assignment optimal for the sizes it has (successive shortest paths). No column
  is repeated.

Places that stay free are counted as `slack`, so that every column is filled.
"""

import itertools
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from eldr_runtime.array_types import Floats, Floats32, Ints

COLD_LEVELS = (0.3, 0.1, 0.03)  # smoothing, in shares of the spread of the costs
WARM_LEVEL = 0.01  # where a start from the prices of a similar problem enters
FINAL_LEVELS = (0.003,)
NEWTON_STEPS = 8
STEP_LIMIT = 4.0  # of the smoothing; beyond it the quadratic model of the dual does not hold
RIDGE_SHARE = 0.01
LOWEST_EXPONENT = -30.0  # smaller shares, squared, are subnormal: products took 25-60 times as long
LOAD_TOLERANCE_SHARE = 0.002
TIE = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Column of each row `(n_rows,)` int64, and the column prices `(n_columns,)` float64 if any were used."""

    labels: Ints
    prices: Floats | None


def assign_by_columns(cost: Floats32 | Floats, capacity: int, prices: Floats | None) -> Assignment:
    """Solve with repeated columns; `prices` of a similar problem make it faster, never different in cost."""
    n_rows, n_columns = cost.shape
    capacity = min(capacity, n_rows)
    prices = _column_prices(cost, capacity, prices)
    slack_rows = np.zeros((capacity * n_columns - n_rows, n_columns))
    reduced = np.vstack([cost, slack_rows]) + prices
    reduced -= reduced.min(axis=1, keepdims=True)
    _, places = linear_sum_assignment(np.repeat(reduced, capacity, axis=1))
    return Assignment(labels=(places[:n_rows] // capacity).astype(np.int64), prices=prices)


def assign_by_transfers(cost: Floats32 | Floats, capacity: int, prices: Floats | None) -> Assignment:
    """Solve over the columns as sinks; the total cost is that of `assign_by_columns` up to rounding."""
    capacity = min(capacity, len(cost))
    prices = _column_prices(cost, capacity, prices)
    return Assignment(labels=_Transfers(cost + prices, prices, capacity).settle(), prices=prices)


def _column_prices(cost: Floats32 | Floats, capacity: int, start: Floats | None) -> Floats:
    """Approximate optimal dual, float64 `(n_columns,)`, lowest price 0."""
    n_rows, n_columns = cost.shape
    n_slack = capacity * n_columns - n_rows
    spread = float(cost.std())
    if spread == 0.0:
        return np.zeros(n_columns)
    rows = np.vstack([cost, np.zeros((1, n_columns), cost.dtype)]) if n_slack else cost
    weights = np.ones((len(rows), 1), cost.dtype)
    weights[n_rows:] = n_slack
    prices, is_settled = np.zeros(n_columns), False
    if start is not None:
        prices, is_settled = _newton(rows, weights, capacity, start, WARM_LEVEL * spread)
    for level in (WARM_LEVEL, *FINAL_LEVELS) if is_settled else (*COLD_LEVELS, WARM_LEVEL, *FINAL_LEVELS):
        prices, _ = _newton(rows, weights, capacity, prices, level * spread)
    return prices


def _newton(
    rows: Floats32 | Floats, weights: Floats32 | Floats, capacity: int, prices: Floats, smoothing: float
) -> tuple[Floats, bool]:
    """Prices at which the smoothed loads meet the capacity, and whether they do."""
    for _ in range(NEWTON_STEPS):
        share = (rows + prices.astype(rows.dtype)) * rows.dtype.type(-1.0 / smoothing)
        share -= share.max(axis=1, keepdims=True)
        np.exp(np.maximum(share, LOWEST_EXPONENT, out=share), out=share)
        share /= share.sum(axis=1, keepdims=True)
        weighted = share * weights
        load = weighted.sum(axis=0, dtype=np.float64)
        excess = load - capacity
        if np.abs(excess).max() < max(0.5, LOAD_TOLERANCE_SHARE * capacity):
            return prices, True
        curvature = np.diag(load + RIDGE_SHARE * capacity) - (share.T @ weighted).astype(np.float64)
        step = smoothing * np.linalg.solve(curvature, excess)
        step *= min(1.0, STEP_LIMIT * smoothing / float(np.abs(step).max()))
        prices = prices + step
        prices -= prices.min()
    return prices, False


class _Transfers:
    """Rows at their cheapest column, then moved until no column is over its capacity.

    `move_cost[a, b]` is the least that moving one unit (a row or a free place) from column a to b adds.
    """

    def __init__(self, reduced: Floats, prices: Floats, capacity: int) -> None:
        self.reduced = reduced
        self.prices = prices
        self.capacity = capacity
        n_rows, self.n_columns = reduced.shape
        self.labels: Ints = np.argmin(reduced, axis=1)
        self.slack = np.zeros(self.n_columns, dtype=np.int64)
        self.slack[np.argmin(prices)] = capacity * self.n_columns - n_rows
        self.move_cost = np.full((self.n_columns, self.n_columns), np.inf)
        for column in range(self.n_columns):
            self._refresh(column)

    def settle(self) -> Ints:
        while True:
            excess = np.bincount(self.labels, minlength=self.n_columns) + self.slack - self.capacity
            if not excess.any():
                return self.labels
            path = self._cheapest_path(excess)
            self._shift(path, min(int(excess[path[0]]), int(-excess[path[-1]])))

    def _refresh(self, column: int) -> None:
        members = self.reduced[self.labels == column]
        moves = np.full(self.n_columns, np.inf)
        if len(members):
            moves = (members - members[:, column : column + 1]).min(axis=0)
        if self.slack[column]:
            moves = np.minimum(moves, self.prices - self.prices[column])
        moves[column] = np.inf
        self.move_cost[column] = moves

    def _cheapest_path(self, excess: Ints) -> list[int]:
        """Bellman-Ford from all crowded columns at once to the cheapest column with room."""
        distance = np.where(excess > 0, 0.0, np.inf)
        before = np.full(self.n_columns, -1)
        for _ in range(self.n_columns):
            through = distance[:, None] + self.move_cost
            best = np.argmin(through, axis=0)
            reached = through[best, np.arange(self.n_columns)]
            is_nearer = reached < distance - TIE
            if not is_nearer.any():
                break
            distance[is_nearer] = reached[is_nearer]
            before[is_nearer] = best[is_nearer]
        end = int(np.argmin(np.where(excess < 0, distance, np.inf)))
        path = [end]
        while before[path[-1]] >= 0:
            path.append(int(before[path[-1]]))
        return path[::-1]

    def _shift(self, path: list[int], n_units: int) -> None:
        """Move up to `n_units` along the path: as many as cost the same at each of its edges."""
        edges = list(itertools.pairwise(path))
        movers = [self._tied_movers(a, b) for a, b in edges]
        for (a, b), rows in zip(edges, movers, strict=True):
            n_units = min(n_units, len(rows) + (int(self.slack[a]) if self._slack_is_tied(a, b) else 0))
        for (a, b), rows in zip(edges, movers, strict=True):
            n_rows = min(n_units, len(rows))
            self.labels[rows[:n_rows]] = b
            self.slack[a] -= n_units - n_rows
            self.slack[b] += n_units - n_rows
        for column in path:
            self._refresh(column)

    def _tied_movers(self, a: int, b: int) -> Ints:
        members = np.flatnonzero(self.labels == a)
        cost = self.reduced[members, b] - self.reduced[members, a]
        tied: Ints = members[cost <= self.move_cost[a, b] + TIE]
        return tied

    def _slack_is_tied(self, a: int, b: int) -> bool:
        return bool(self.slack[a] and self.prices[b] - self.prices[a] <= self.move_cost[a, b] + TIE)
