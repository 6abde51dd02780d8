from eldr_runtime.router.request_clock import RequestClock


def test_times_by_hand() -> None:
    clock = RequestClock(arrived_seconds=100.0)
    for at in (100.25, 100.5, 101.25):
        clock.saw_content(at)
    assert clock.ttft_ms == 250.0
    # One second for the ten tokens after the first, however many chunks they came in.
    assert clock.tpot_ms(completion_tokens=11) == 100.0


def test_nothing_to_say_before_content_and_of_a_single_token() -> None:
    clock = RequestClock(arrived_seconds=1.0)
    assert clock.ttft_ms is None
    assert clock.tpot_ms(completion_tokens=5) is None
    clock.saw_content(2.0)
    assert clock.tpot_ms(completion_tokens=1) is None
