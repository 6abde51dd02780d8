import pytest

from eldr_runtime.router.worker_scrape import StepCounters, StepCounts
from eldr_runtime.serving_engine import EngineMetrics


def reading(steps: float, batch: float, *experts: float) -> EngineMetrics:
    return EngineMetrics(n_steps=steps, batch_sum=batch, distinct_experts_sum=experts)


def test_growth_by_hand() -> None:
    counters = StepCounters()
    assert counters.since_last("w", reading(10, 35, 100, 120)) is None
    assert counters.since_last("w", reading(14, 45, 140, 180)) == StepCounts(
        n_steps=4, batch_sum=10, distinct_experts_sum=(40, 60)
    )


def test_a_counter_that_went_down_is_a_new_beginning() -> None:
    counters = StepCounters()
    counters.since_last("w", reading(10, 35, 100))
    assert counters.since_last("w", reading(2, 4, 9)) is None
    assert counters.since_last("w", reading(3, 6, 14)) == StepCounts(
        n_steps=1, batch_sum=2, distinct_experts_sum=(5,)
    )


@pytest.mark.parametrize(
    "gap", [EngineMetrics(), EngineMetrics(n_steps=12, batch_sum=40), reading(12, 40, 1, 2)]
)
def test_a_missing_or_differently_shaped_reading_is_not_counted(gap: EngineMetrics) -> None:
    counters = StepCounters()
    counters.since_last("w", reading(10, 35, 100))
    assert counters.since_last("w", gap) is None


def test_an_idle_worker_reports_nothing() -> None:
    counters = StepCounters()
    counters.since_last("w", reading(10, 35, 100))
    assert counters.since_last("w", reading(10, 35, 100)) is None


def test_a_worker_that_left_begins_anew() -> None:
    counters = StepCounters()
    counters.since_last("w", reading(10, 35, 100))
    counters.keep(["other"])
    assert counters.since_last("w", reading(20, 70, 200)) is None
