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

SMOOTHING_LEVELS = (0.3, 0.1, 0.03, 0.01, 0.003)  # in shares of the spread of the costs
SAMPLE_ROWS = 8_192  # the coarse levels are solved on about so many rows
N_FINE_LEVELS = 2
NEWTON_STEPS = 10
STEP_LIMIT = 16.0  # of the smoothing; beyond it the quadratic model of the dual does not hold
RIDGE_SHARE = 0.001  # a larger one creeps where clusters hardly touch, a smaller one overshoots there
LOWEST_EXPONENT = -30.0  # smaller shares, squared, are subnormal: products took 25-60 times as long
LOAD_TOLERANCE_SHARE = 0.002
TIE = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Assignment:
    """Column of each row, int64 `(n_rows,)`, and the column prices, float64 `(n_columns,)`."""

    labels: Ints
    prices: Floats


def assign_by_columns(cost: Floats32 | Floats, capacity: int, start: Floats | None = None) -> Assignment:
    """Solve with repeated columns.

    Parameters
    ----------
    cost : ndarray of shape (n_rows, n_columns), float32 or float64
    capacity : int
        Rows a column at most.
    start : ndarray of shape (n_columns,), float64, optional
        Prices of a similar problem. They save time; the total cost is the same.
    """
    n_rows, n_columns = cost.shape
    capacity = min(capacity, n_rows)
    prices = _column_prices(cost, capacity, start)
    slack_rows = np.zeros((capacity * n_columns - n_rows, n_columns))
    reduced = np.vstack([cost, slack_rows]) + prices
    reduced -= reduced.min(axis=1, keepdims=True)
    _, places = linear_sum_assignment(np.repeat(reduced, capacity, axis=1))
    return Assignment(labels=(places[:n_rows] // capacity).astype(np.int64), prices=prices)


def assign_by_transfers(cost: Floats32 | Floats, capacity: int, start: Floats | None = None) -> Assignment:
    """Solve over the columns as sinks; parameters and total cost, up to rounding, of `assign_by_columns`."""
    capacity = min(capacity, len(cost))
    prices = _column_prices(cost, capacity, start)
    return Assignment(labels=_Transfers(cost + prices, prices, capacity).settle(), prices=prices)


def _column_prices(cost: Floats32 | Floats, capacity: int, start: Floats | None) -> Floats:
    """Approximate optimal dual, float64 `(n_columns,)`, lowest price 0."""
    n_rows, n_columns = cost.shape
    spread = float(cost.std())
    if spread == 0.0:
        return np.zeros(n_columns)
    n_slack = capacity * n_columns - n_rows
    coarse, fine = SMOOTHING_LEVELS[:-N_FINE_LEVELS], SMOOTHING_LEVELS[-N_FINE_LEVELS:]
    prices, is_settled = start, False
    if prices is not None:
        prices, is_settled = _newton(cost, n_slack, capacity, prices, fine[0] * spread)
    if prices is None or not is_settled:
        prices = np.zeros(n_columns)
        sample = cost[:: max(1, n_rows // SAMPLE_ROWS)].copy()
        share = len(sample) / n_rows
        for level in coarse:
            prices, _ = _newton(sample, n_slack * share, capacity * share, prices, level * spread)
    for level in fine:
        prices, _ = _newton(cost, n_slack, capacity, prices, level * spread)
    return prices


def _newton(
    cost: Floats32 | Floats, n_slack: float, capacity: float, prices: Floats, smoothing: float
) -> tuple[Floats, bool]:
    """Prices at which the smoothed loads meet the capacity, and whether the allowed steps got there."""
    for _ in range(NEWTON_STEPS):
        share = _soft_assignment(cost + prices.astype(cost.dtype), smoothing)
        slack = n_slack * _soft_assignment(prices[None], smoothing)[0]
        load = share.sum(axis=0, dtype=np.float64) + slack
        excess = load - capacity
        if np.abs(excess).max() < max(0.5, LOAD_TOLERANCE_SHARE * capacity):
            return prices, True
        overlap = (share.T @ share).astype(np.float64) + np.outer(slack, slack) / max(n_slack, 1.0)
        curvature = np.diag(load + RIDGE_SHARE * capacity) - overlap
        step = smoothing * np.linalg.solve(curvature, excess)
        step *= min(1.0, STEP_LIMIT * smoothing / float(np.abs(step).max()))
        prices = prices + step
        prices -= prices.min()
    return prices, False


def _soft_assignment(reduced: Floats32 | Floats, smoothing: float) -> Floats32 | Floats:
    """Share of each row in each column, by the exponential of its cost."""
    reduced = reduced * reduced.dtype.type(-1.0 / smoothing)
    reduced -= reduced.max(axis=1, keepdims=True)
    np.exp(np.maximum(reduced, LOWEST_EXPONENT, out=reduced), out=reduced)
    reduced /= reduced.sum(axis=1, keepdims=True)
    return reduced


class _Transfers:
    """Rows at their cheapest column, then moved until no column is over its capacity.

    `row_cost[a, b]` is the least that moving a row from column a to b adds, `best_row[a, b]` the row.
    """

    def __init__(self, reduced: Floats, prices: Floats, capacity: int) -> None:
        self.by_column = np.ascontiguousarray(reduced.T)
        self.prices = prices
        self.capacity = capacity
        self.n_columns, n_rows = self.by_column.shape
        self.labels: Ints = np.argmin(reduced, axis=1)
        self.slack = np.zeros(self.n_columns, dtype=np.int64)
        self.slack[np.argmin(prices)] = capacity * self.n_columns - n_rows
        self.row_cost = np.full((self.n_columns, self.n_columns), np.inf)
        self.best_row = np.full((self.n_columns, self.n_columns), -1)
        for column in range(self.n_columns):
            self._rescan(column, np.arange(self.n_columns))

    def settle(self) -> Ints:
        while True:
            excess = np.bincount(self.labels, minlength=self.n_columns) + self.slack - self.capacity
            if not excess.any():
                return self.labels
            path = self._cheapest_path(excess)
            self._shift(path, min(int(excess[path[0]]), int(-excess[path[-1]])))

    def _slack_cost(self) -> Floats:
        cost: Floats = np.where(self.slack[:, None] > 0, self.prices - self.prices[:, None], np.inf)
        return cost

    def _cheapest_path(self, excess: Ints) -> list[int]:
        """Bellman-Ford from all crowded columns at once to the cheapest column with room."""
        move_cost = np.minimum(self.row_cost, self._slack_cost())
        distance = np.where(excess > 0, 0.0, np.inf)
        before = np.full(self.n_columns, -1)
        for _ in range(self.n_columns):
            through = distance[:, None] + move_cost
            best = np.argmin(through, axis=0)
            reached = through[best, np.arange(self.n_columns)]
            is_nearer = reached < distance - TIE
            if not is_nearer.any():
                break
            distance[is_nearer] = reached[is_nearer]
            before[is_nearer] = best[is_nearer]
        path = [int(np.argmin(np.where(excess < 0, distance, np.inf)))]
        while before[path[-1]] >= 0:
            path.append(int(before[path[-1]]))
        return path[::-1]

    def _shift(self, path: list[int], n_units: int) -> None:
        """Move up to `n_units` along the path: as many as cost the same at each of its edges."""
        edges = list(itertools.pairwise(path))
        movers, slack = [], []
        slack_cost = self._slack_cost()
        for a, b in edges:
            cost = min(self.row_cost[a, b], slack_cost[a, b]) + TIE
            members = np.flatnonzero(self.labels == a)
            movers.append(members[self.by_column[b, members] - self.by_column[a, members] <= cost])
            slack.append(int(self.slack[a]) if slack_cost[a, b] <= cost else 0)
            n_units = min(n_units, len(movers[-1]) + slack[-1])
        for (a, b), rows in zip(edges, movers, strict=True):
            moved = rows[:n_units]
            self.labels[moved] = b
            self.slack[a] -= n_units - len(moved)
            self.slack[b] += n_units - len(moved)
        for (a, b), rows in zip(edges, movers, strict=True):
            self._rescan(a, np.flatnonzero(np.isin(self.best_row[a], rows[:n_units])))
            self._welcome(b, rows[:n_units])

    def _rescan(self, column: int, to: Ints) -> None:
        """Find the cheapest move from a column to each of `to` among all its rows."""
        others = to[to != column]
        members = np.flatnonzero(self.labels == column)
        if not len(members):
            self.row_cost[column, others], self.best_row[column, others] = np.inf, -1
            return
        cost = self.by_column[np.ix_(others, members)] - self.by_column[column, members]
        best = np.argmin(cost, axis=1)
        self.row_cost[column, others] = cost[np.arange(len(others)), best]
        self.best_row[column, others] = members[best]

    def _welcome(self, column: int, rows: Ints) -> None:
        """Take new rows of a column into its cheapest moves."""
        if not len(rows):
            return
        cost = self.by_column[:, rows] - self.by_column[column, rows]
        best = np.argmin(cost, axis=1)
        least = cost[np.arange(self.n_columns), best]
        is_cheaper = least < self.row_cost[column]
        is_cheaper[column] = False
        self.row_cost[column, is_cheaper] = least[is_cheaper]
        self.best_row[column, is_cheaper] = rows[best[is_cheaper]]
