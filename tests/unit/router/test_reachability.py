from eldr_runtime.router.reachability import Reachability


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_three_failures_in_a_row_and_no_fewer() -> None:
    clock = Clock()
    reachability = Reachability(1.0, clock)
    for _ in range(2):
        reachability.failed("w", is_unreachable=False)
    reachability.succeeded("w")
    for _ in range(2):
        reachability.failed("w", is_unreachable=False)
    assert reachability.reachable(["w"]) == ("w",)
    reachability.failed("w", is_unreachable=False)
    assert reachability.reachable(["w"]) == ()
    clock.seconds = 1.0
    assert reachability.reachable(["w"]) == ("w",)


def test_after_its_rest_one_more_failure_is_enough() -> None:
    clock = Clock()
    reachability = Reachability(1.0, clock)
    for _ in range(3):
        reachability.failed("w", is_unreachable=False)
    clock.seconds = 5.0
    reachability.failed("w", is_unreachable=False)
    assert reachability.reachable(["w"]) == ()


def test_a_worker_that_left_is_forgotten() -> None:
    reachability = Reachability(1.0, Clock())
    reachability.failed("w", is_unreachable=True)
    reachability.keep([])
    assert reachability.reachable(["w"]) == ("w",)
