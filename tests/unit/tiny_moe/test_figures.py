from dataclasses import replace

import numpy as np
import pytest

from assets.tiny_moe.figures import (
    CheckpointFigures,
    ScopeFigures,
    bars,
    distinct_share,
    prefill_decode_correlation,
    scope_figures,
    seed_spreads,
)
from eldr_runtime.expert_trace import ExpertTrace
from eldr_runtime.model_shape import ModelShape

N_REQUESTS = 80  # 40 in each of two groups, so that a batch of 32 fits in a group


@pytest.fixture
def trace() -> ExpertTrace:
    """Two groups that share no expert: one uses the first of four, the other the last."""
    counts = np.zeros((N_REQUESTS, 1, 4), dtype=np.uint32)
    counts[: N_REQUESTS // 2, 0, 0] = 3
    counts[N_REQUESTS // 2 :, 0, 3] = 3
    tokens = np.full(N_REQUESTS, 3)
    return ExpertTrace(
        shape=ModelShape(model="m", n_layers=1, n_experts=4, top_k=1),
        prefill_counts=counts,
        prompt_tokens=tokens,
        covered_tokens=tokens,
        decode_counts=counts,
        decode_steps=tokens,
        labels=("code",) * (N_REQUESTS // 2) + ("math",) * (N_REQUESTS // 2),
    )


def _figures(seed: int, union: float = -18.0, correlation: float = 0.9) -> CheckpointFigures:
    scope = ScopeFigures(
        union_percent={16: union},
        prefill_decode_correlation=correlation,
        rho_count=0.7,
        rho_count_idf=0.8,
    )
    language = replace(scope, union_percent={16: -30.0})
    return CheckpointFigures(
        seed=seed,
        held_out_loss={"code": 2.0, "math": 1.0},
        distinct_share={"code": 0.98, "math": 0.96},
        scopes={"task": scope, "language": language, "all": scope},
    )


def test_groups_without_a_common_expert_halve_the_union(trace: ExpertTrace) -> None:
    figures = scope_figures(trace, ("code", "math"))
    # Of 16 requests drawn from both halves, all but a chance of about 1 in 65,000 use both experts.
    assert figures.union_percent[16] == pytest.approx(-50.0, abs=0.01)
    assert figures.rho_count == pytest.approx(1.0)
    assert figures.prefill_decode_correlation == pytest.approx(1.0)


def test_correlation_is_pearsons_over_experts(trace: ExpertTrace) -> None:
    moved = np.roll(trace.prefill_counts, 1, axis=-1)
    # Rows (3,0,0,0) and (0,3,0,0), each less its mean: -1/3.
    assert prefill_decode_correlation(replace(trace, prefill_counts=moved)) == pytest.approx(-1 / 3)


def test_distinct_share_is_a_mean_over_requests() -> None:
    assert distinct_share(np.array([[1, 1, 1, 1, 1], [1, 2, 3, 4, 5]])) == pytest.approx(0.75)


def test_every_bar_is_passed_by_two_good_seeds() -> None:
    assert all(bar.is_passed for bar in bars([_figures(1), _figures(2)]))


def test_bars_name_what_fails() -> None:
    failed = [bar.name for bar in bars([_figures(1, union=-14.0, correlation=0.7)]) if not bar.is_passed]
    assert failed == [
        "seed 1: union at batch 16, task, %",
        "seed 1: prefill-decode correlation, task",
        "seed 1: prefill-decode correlation, language",
        "seed 1: prefill-decode correlation, all",
        "seeds compared",
    ]


def test_spread_is_largest_less_smallest() -> None:
    spreads = seed_spreads([_figures(1, union=-18.0), _figures(2, union=-16.0)])
    assert spreads["task.union_percent.16"] == pytest.approx(2.0)
    assert spreads["held_out_loss"] == 0.0
