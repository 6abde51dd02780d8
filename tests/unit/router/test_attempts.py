import pytest

from eldr_runtime.router.attempts import attempt_key, new_attempt_id, request_id_from


@pytest.mark.parametrize("header", [None, "", "two words", "a" * 129, "line\nbreak", "ü"])
def test_an_unsafe_or_missing_id_is_replaced(header: str | None) -> None:
    made = request_id_from(header)
    assert made != header
    assert len(made) == 32
    assert made != request_id_from(header)


def test_attempts_of_one_request_differ_and_are_found_again() -> None:
    first, second = new_attempt_id("r-1"), new_attempt_id("r-1")
    assert first != second
    assert first.startswith("r-1.")
    for decorated in (first, f"cmpl-{first}-0", f"chatcmpl-{first}", f"chatcmpl-{first}-89abcdef"):
        assert attempt_key(decorated) == first[-32:]


def test_an_id_of_somebody_else_has_no_key() -> None:
    assert attempt_key("chatcmpl-123") is None


def test_a_client_cannot_choose_the_key() -> None:
    forged = "x." + "0" * 32
    attempt = new_attempt_id(request_id_from(forged))
    assert attempt_key(attempt) == attempt[-32:] != "0" * 32
