from hypothesis import given
from hypothesis import strategies as st

from eldr_runtime.sampling import is_sampled

FIRST_EIGHT = [True, False, True, True, False, False, False, False]


def test_share_by_count() -> None:
    n_sampled = sum(is_sampled(f"request-{index}", 0.25) for index in range(4000))
    assert 900 < n_sampled < 1100  # 1,000 expected, standard deviation 27


def test_the_same_in_every_process() -> None:
    assert [is_sampled(f"request-{index}", 0.5) for index in range(8)] == FIRST_EIGHT


@given(st.text(max_size=40), st.floats(0, 1), st.floats(0, 1))
def test_a_smaller_sample_is_part_of_a_larger_one(request_id: str, one: float, other: float) -> None:
    if is_sampled(request_id, min(one, other)):
        assert is_sampled(request_id, max(one, other))


@given(st.text(max_size=40))
def test_all_and_none(request_id: str) -> None:
    assert is_sampled(request_id, 1.0)
    assert not is_sampled(request_id, 0.0)
