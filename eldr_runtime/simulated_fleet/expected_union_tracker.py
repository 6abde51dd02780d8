"""The expected union of a changing batch, kept in log space: a join adds one array, a leave takes it away."""

from collections.abc import Hashable

import numpy as np

from eldr_runtime.array_types import Floats

# float64 sums lose about 1e-16 of their size a change; a sum anew costs as much as one change a member
CHANGES_UNTIL_RECOMPUTED = 256


class ExpectedUnionTracker:
    """Sum of `log(1 - p)` over the members of a batch, and from it the expected distinct experts.

    Examples
    --------
    >>> tracker = ExpectedUnionTracker(n_layers=1, n_experts=2)
    >>> tracker.join("a", np.log(np.array([[0.5, 1.0]])))
    >>> tracker.join("b", np.log(np.array([[0.5, 0.5]])))
    >>> [float(experts) for experts in tracker.by_layer()]
    [1.25]
    """

    def __init__(self, *, n_layers: int, n_experts: int) -> None:
        self._n_experts = n_experts
        self._members: dict[Hashable, Floats] = {}
        self._log_q = np.zeros((n_layers, n_experts))
        self._n_changes = 0

    def join(self, member: Hashable, log_unused: Floats) -> None:
        """Add a member; `log_unused` is float64 `(n_layers, n_experts)`, finite."""
        self._members[member] = log_unused
        self._log_q += log_unused
        self._count_change()

    def leave(self, member: Hashable) -> None:
        """Take a member out."""
        self._log_q -= self._members.pop(member)
        self._count_change()

    def by_layer(self) -> Floats:
        """Return the expected distinct experts of one step, float64 `(n_layers,)`."""
        return np.asarray(self._n_experts - np.exp(self._log_q).sum(axis=1), dtype=np.float64)

    def _count_change(self) -> None:
        self._n_changes += 1
        if self._n_changes >= CHANGES_UNTIL_RECOMPUTED or not self._members:
            self._n_changes = 0
            self._log_q[...] = 0.0
            for log_unused in self._members.values():
                self._log_q += log_unused
