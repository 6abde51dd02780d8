import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from eldr_runtime.errors import InvalidValue
from eldr_runtime.worker_load import InFlightCounter, InFlightLease, PoolView

WORKERS = ("a", "b", "c")


def test_counts_by_hand() -> None:
    counter = InFlightCounter()
    first, second = counter.acquire("a"), counter.acquire("a")
    counter.acquire("b")
    assert counter.view(["b", "a", "c"]).in_flight.tolist() == [1, 2, 0]
    assert counter.by_worker() == {"a": 2, "b": 1}
    first.release()
    first.release()
    assert counter.in_flight("a") == 1
    second.release()
    assert counter.in_flight("a") == 0
    assert counter.n_routed == counter.view(["a"]).n_routed == 3


def test_release_happens_when_the_request_fails() -> None:
    counter = InFlightCounter()
    held = []

    def serve() -> None:
        with counter.acquire("a") as lease:
            held.append((lease.is_held, counter.in_flight("a")))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        serve()
    assert held == [(True, 1)]
    assert counter.in_flight("a") == 0


def test_a_lease_of_a_former_life_does_not_subtract_from_the_next() -> None:
    counter = InFlightCounter()
    old = counter.acquire("a")
    counter.leave("a")
    assert counter.in_flight("a") == 0
    counter.acquire("a")
    old.release()
    assert counter.in_flight("a") == 1


def test_a_view_is_a_copy_and_asking_adds_no_worker() -> None:
    counter = InFlightCounter()
    view = counter.view(["a"])
    counter.acquire("a")
    assert view.in_flight.tolist() == [0]
    counter.view(["never seen"])
    assert counter.by_worker() == {"a": 1}


@pytest.mark.parametrize(
    ("ids", "in_flight", "field"),
    [
        ((), np.zeros(0, dtype=np.int64), "worker_ids"),
        (("a",), np.zeros(2, dtype=np.int64), "in_flight shape"),
        (("a",), np.zeros(1, dtype=np.int32), "in_flight dtype"),
        (("a", "b"), np.array([1, -1]), "in_flight"),
    ],
)
def test_refuses_a_view_that_contradicts_itself(
    ids: tuple[str, ...], in_flight: np.ndarray, field: str
) -> None:
    with pytest.raises(InvalidValue) as refused:
        PoolView(worker_ids=ids, in_flight=in_flight)
    assert refused.value.field == field


class InFlightMachine(RuleBasedStateMachine):
    """Every interleaving of acquire, release, release again, leave and rejoin against sets of live leases."""

    leases = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self.counter = InFlightCounter()
        self.live: dict[str, set[int]] = {worker: set() for worker in WORKERS}
        self.n_acquired = 0

    @rule(target=leases, worker=st.sampled_from(WORKERS))
    def acquire(self, worker: str) -> InFlightLease:
        lease = self.counter.acquire(worker)
        self.live[worker].add(id(lease))
        self.n_acquired += 1
        return lease

    @rule(lease=leases)
    def release(self, lease: InFlightLease) -> None:
        lease.release()
        self.live[lease.worker_id].discard(id(lease))

    @rule(lease=consumes(leases))
    def release_through_exit(self, lease: InFlightLease) -> None:
        with lease:
            pass
        self.live[lease.worker_id].discard(id(lease))
        self.kept = [*getattr(self, "kept", []), lease]  # keeps ids unique

    @rule(worker=st.sampled_from(WORKERS))
    def leave(self, worker: str) -> None:
        self.counter.leave(worker)
        self.live[worker].clear()

    @invariant()
    def counts_are_exact(self) -> None:
        view = self.counter.view(WORKERS)
        assert view.in_flight.tolist() == [len(self.live[worker]) for worker in WORKERS]
        assert view.n_routed == self.n_acquired
        assert all(count >= 0 for count in self.counter.by_worker().values())


TestInFlightMachine = InFlightMachine.TestCase
TestInFlightMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
