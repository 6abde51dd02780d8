import numpy as np
import pytest

from eldr_runtime.count_codec import ExpertCounts, encode_counts
from eldr_runtime.model_shape import ModelShape
from eldr_runtime.vllm_adapter.self_test import (
    CaptureCheck,
    EngineSetUp,
    probe_request,
    refusals,
    why_not_real,
    why_probe_failed,
)

SHAPE = ModelShape(model="m", n_layers=2, n_experts=8, top_k=2)


def real_rows(n_tokens: int = 20) -> np.ndarray:
    rng = np.random.default_rng(3)
    return np.argsort(rng.random((n_tokens, 2, 8)), axis=2)[:, :, :2].astype(np.uint8)


def test_an_engine_of_one_rank_is_taken() -> None:
    assert refusals(EngineSetUp(n_experts=64)) == ()


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        (EngineSetUp(n_experts=0), "no experts"),
        (EngineSetUp(n_experts=64, tensor_parallel_size=2), "tensor_parallel_size is 2; must be 1"),
        (EngineSetUp(n_experts=64, pipeline_parallel_size=4), "pipeline_parallel_size is 4; must be 1"),
        (EngineSetUp(n_experts=64, data_parallel_size=8), "data_parallel_size is 8; must be 1"),
        (EngineSetUp(n_experts=64, context_parallel_size=2), "context parallel size is 2; must be 1"),
        (EngineSetUp(n_experts=64, is_expert_parallel=True), "expert parallelism"),
        (EngineSetUp(n_experts=64, is_expert_load_balanced=True), "load balancing"),
        (EngineSetUp(n_experts=64, is_speculative=True), "speculative decoding"),
        (EngineSetUp(n_experts=64, is_async_scheduled=True), "--no-async-scheduling"),
        (EngineSetUp(n_experts=64, is_micro_batched=True), "dual batch overlap"),
        (EngineSetUp(n_experts=64, is_compiled_on_cpu=True), "--enforce-eager"),
        (EngineSetUp(n_experts=64, has_full_attention=False), "no KV cache group"),
    ],
)
def test_what_cannot_be_vouched_for_is_refused_with_its_reason(engine: EngineSetUp, words: str) -> None:
    (reason,) = refusals(engine)
    assert words in reason


def test_every_reason_is_told() -> None:
    assert len(refusals(EngineSetUp(n_experts=64, tensor_parallel_size=2, is_speculative=True))) == 2


def test_real_rows_have_nothing_wrong() -> None:
    assert why_not_real(real_rows(), is_varied=True) is None


def test_the_same_expert_twice_is_nothing_a_router_does() -> None:
    rows = real_rows()
    rows[4, 1] = 0
    assert why_not_real(rows, is_varied=False) == "layer 1 gives a token the same expert twice"


def test_a_constant_layer_is_wrong_for_varied_prompts_alone() -> None:
    rows = real_rows()
    rows[:, 0] = rows[0, 0]
    assert why_not_real(rows, is_varied=True) == "layer 0 chooses the same experts for every token"
    assert why_not_real(rows, is_varied=False) is None


def look(check: CaptureCheck, rows: np.ndarray, n_known: int | None = None) -> bool:
    return check.look_at(rows, np.arange(len(rows)) < (len(rows) if n_known is None else n_known))


def test_counts_flow_in_a_vouched_version_until_a_check_fails() -> None:
    check = CaptureCheck("0.32.0")
    assert (check.is_open, check.is_passed) == (True, None)
    assert look(check, np.zeros((20, 2, 2), dtype=np.uint8))
    assert (check.is_open, check.is_passed) == (False, False)
    assert check.reason == "layer 0 gives a token the same expert twice"


def test_counts_wait_for_the_check_in_another_version() -> None:
    check = CaptureCheck("0.33.0")
    assert not check.is_open
    assert look(check, real_rows())
    assert (check.is_open, check.is_passed) == (True, True)


def test_short_partly_known_and_uniform_prompts_decide_nothing() -> None:
    check = CaptureCheck("0.33.0")
    uniform = np.repeat(real_rows(1), 20, axis=0)
    assert not look(check, real_rows(15))
    assert not look(check, real_rows(), n_known=19)
    assert not look(check, uniform)
    assert check.is_passed is None
    assert look(check, real_rows())


def test_what_passed_once_is_not_asked_again_but_can_fail() -> None:
    check = CaptureCheck("0.32.0")
    look(check, real_rows())
    assert not look(check, np.zeros((20, 2, 2), dtype=np.uint8))
    assert check.is_open
    check.fail("counts do not add up")
    assert not check.is_open


def answer(counts: np.ndarray, tokens: int, covered: int, field: str) -> dict[str, object]:
    message = encode_counts(
        ExpertCounts(shape=SHAPE, counts=counts.astype(np.uint32), tokens=tokens, covered=covered)
    )
    return {"kv_transfer_params": {field: message}}


GOOD = np.array([[5, 5, 5, 5, 0, 0, 0, 0], [10, 8, 2, 0, 0, 0, 0, 0]])


@pytest.mark.parametrize(("is_prefill", "field"), [(True, "eldr"), (False, "eldr_decode")])
def test_the_probe_of_a_sound_worker(is_prefill: bool, field: str) -> None:
    assert why_probe_failed(answer(GOOD, 10, 10, field), is_prefill=is_prefill) is None
    asked = probe_request("m", is_prefill=is_prefill)
    assert asked["max_tokens"] == (1 if is_prefill else 16)
    assert ("kv_transfer_params" in asked) is not is_prefill
    assert asked["temperature"] == 1.0


def test_the_probe_of_a_worker_that_sees_nothing_or_not_all() -> None:
    for nothing in ({}, {"kv_transfer_params": None}, {"kv_transfer_params": {"eldr": {}}}):
        assert "the plugin is missing" in str(why_probe_failed(nothing, is_prefill=True))
    partly = answer(GOOD, 12, 10, "eldr")
    assert why_probe_failed(partly, is_prefill=True) == "experts of 10 of 12 tokens are known; must be of all"
    constant = answer(np.array([GOOD[0], [10, 10, 0, 0, 0, 0, 0, 0]]), 10, 10, "eldr")
    assert "same experts for every token" in str(why_probe_failed(constant, is_prefill=True))
    broken = {"kv_transfer_params": {"eldr": {"v": 1}}}
    assert "model is None" in str(why_probe_failed(broken, is_prefill=True))
