import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eldr_runtime.router.prefill_choice import PrefillRing, choose_prefill, prompt_prefix
from eldr_runtime.worker_load import PoolView


def pool(**in_flight: int) -> PoolView:
    return PoolView(worker_ids=tuple(in_flight), in_flight=np.array(list(in_flight.values()), dtype=np.int64))


def prefixes(n: int) -> list[bytes]:
    return [f"prompt number {index}".encode() for index in range(n)]


def test_same_prefix_meets_the_same_worker_while_load_is_even() -> None:
    ring = PrefillRing(worker_ids=("a", "b", "c"))
    for prefix in prefixes(20):
        assert choose_prefill(ring, prefix, pool(a=0, b=0, c=0)) == ring.home(prefix)


def test_bound_by_hand() -> None:
    ring = PrefillRing(worker_ids=("a", "b"))
    prefix = next(each for each in prefixes(100) if ring.home(each) == "a")
    # 8 in flight and this one: ceil(1.25 * 9 / 2) = 6, so a worker with 5 may take one more, with 6 not.
    assert choose_prefill(ring, prefix, pool(a=5, b=3)) == "a"
    assert choose_prefill(ring, prefix, pool(a=6, b=2)) == "b"


def test_a_home_that_is_left_out_passes_to_the_next_on_the_ring() -> None:
    ring = PrefillRing(worker_ids=("a", "b", "c"))
    prefix = next(each for each in prefixes(100) if ring.home(each) == "a")
    assert choose_prefill(ring, prefix, pool(b=0, c=0)) == ring.home(prefix, ["b", "c"])


def test_a_lost_worker_moves_its_own_prompts_alone() -> None:
    whole = PrefillRing(worker_ids=("a", "b", "c", "d"))
    without = PrefillRing(worker_ids=("a", "b", "d"))
    for prefix in prefixes(300):
        if whole.home(prefix) != "c":
            assert without.home(prefix) == whole.home(prefix)


def test_shares_are_near_even() -> None:
    ring = PrefillRing(worker_ids=("a", "b", "c", "d"))
    homes = [ring.home(prefix) for prefix in prefixes(4000)]
    assert all(700 < homes.count(worker) < 1300 for worker in "abcd")


@given(st.lists(st.integers(0, 50), min_size=1, max_size=6), st.binary(max_size=40))
def test_no_worker_over_the_bound_is_chosen_unless_it_is_the_least_loaded(
    loads: list[int], prefix: bytes
) -> None:
    names = [f"w{index}" for index in range(len(loads))]
    view = PoolView(worker_ids=tuple(names), in_flight=np.array(loads, dtype=np.int64))
    chosen = choose_prefill(PrefillRing(worker_ids=tuple(names)), prefix, view)
    load = loads[names.index(chosen)]
    assert load == min(loads) or load + 1 <= -(-5 * (sum(loads) + 1) // (4 * len(loads)))


@pytest.mark.parametrize(
    ("body", "prefix"),
    [
        ({"prompt": "hello"}, b"hello"),
        ({"prompt": "é" * 2000}, "é".encode() * 512),
        ({"prompt": "\ud800"}, b"\xed\xa0\x80"),
        ({"prompt": [1, 22, 333]}, b"1,22,333,"),
        ({"messages": [{"role": "user", "content": "hi"}]}, b"user\nhi\n"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, b'user\n[{"type": "text"}]\n'),
        ({}, b""),
    ],
)
def test_prefix_of_a_prompt(body: dict[str, object], prefix: bytes) -> None:
    assert prompt_prefix(body) == prefix


def test_prefix_ends_at_1024_bytes() -> None:
    long = {"messages": [{"role": "system", "content": "s" * 600}, {"role": "user", "content": "u" * 600}]}
    assert len(prompt_prefix(long)) == 1024
    assert len(prompt_prefix({"prompt": list(range(5000))})) == 1024
