import numpy as np
import pytest

from eldr_runtime.count_codec import ExpertCounts, encode_counts
from eldr_runtime.errors import InvalidMessage
from eldr_runtime.model_shape import ModelShape
from eldr_runtime.vllm_adapter.wire_format import VllmEngine

SHAPE = ModelShape(model="tiny", n_layers=2, n_experts=4, top_k=1)
COUNTS = ExpertCounts(
    shape=SHAPE, counts=np.array([[3, 0, 0, 0], [1, 2, 0, 0]], dtype=np.uint32), tokens=3, covered=3
)
PARAMETERS = {"do_remote_prefill": True, "remote_engine_id": "e", "remote_block_ids": [1], "extra": {"a": 1}}


def test_prefill_is_one_token_that_cannot_stop_and_keeps_its_kv() -> None:
    body = {
        "prompt": "p", "max_tokens": 99, "stream": True, "stream_options": {"include_usage": True}, "n": 3,
        "stop": ["x"], "stop_token_ids": [2], "min_tokens": 5, "seed": 11, "unknown": {"deep": [1]},
    }  # fmt: skip
    request = VllmEngine().prefill_request(body)
    assert request.pop("kv_transfer_params") == {
        "do_remote_decode": True,
        "do_remote_prefill": False,
        "remote_engine_id": None,
        "remote_block_ids": None,
        "remote_host": None,
        "remote_port": None,
    }
    assert request == {
        "prompt": "p", "max_tokens": 1, "stream": False, "ignore_eos": True, "n": 1, "seed": 11,
        "unknown": {"deep": [1]},
    }  # fmt: skip


def test_prefill_of_a_chat_that_says_max_completion_tokens() -> None:
    request = VllmEngine().prefill_request({"messages": [], "max_completion_tokens": 50})
    assert (request["max_completion_tokens"], request["max_tokens"]) == (1, 1)


def test_decode_keeps_the_body_and_asks_for_usage() -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "stream": True, "unknown": 1}
    request = VllmEngine().decode_request(body, PARAMETERS)
    assert request == {
        **body, "kv_transfer_params": PARAMETERS, "stream_options": {"include_usage": True},
    }  # fmt: skip
    assert "stream_options" not in body


def test_decode_keeps_other_stream_options_and_drops_a_hand_off_of_the_clients_own() -> None:
    body = {
        "stream": True,
        "stream_options": {"x": 1, "include_usage": False},
        "kv_transfer_params": {"evil": 1},
    }
    request = VllmEngine().decode_request(body, None)
    assert request == {"stream": True, "stream_options": {"x": 1, "include_usage": True}}
    assert VllmEngine().decode_request({"prompt": "p"}, None) == {"prompt": "p"}


def test_counts_are_taken_out_of_the_hand_off() -> None:
    engine = VllmEngine()
    answer = {"kv_transfer_params": {**PARAMETERS, "eldr": encode_counts(COUNTS)}}
    assert engine.read_hand_off(answer) == PARAMETERS
    counts = engine.read_counts(answer)
    assert counts is not None
    assert counts.to_counts().counts.tolist() == COUNTS.counts.tolist()


def test_a_release_is_a_decode_of_one_token() -> None:
    request = VllmEngine().release_request({"prompt": "p", "max_tokens": 9, "stream": True}, PARAMETERS)
    assert request["kv_transfer_params"] == PARAMETERS
    assert (request["max_tokens"], request["stream"]) == (1, False)


@pytest.mark.parametrize("answer", [{}, {"kv_transfer_params": None}, {"kv_transfer_params": {}}])
def test_an_answer_without_a_hand_off(answer: dict[str, object]) -> None:
    assert VllmEngine().read_hand_off(answer) is None
    assert VllmEngine().read_counts(answer) is None


def test_counts_that_are_no_object_are_refused() -> None:
    with pytest.raises(InvalidMessage, match=r"kv_transfer_params\.eldr is 'x'; must be an object"):
        VllmEngine().read_counts({"kv_transfer_params": {"eldr": "x"}})


def test_counts_are_asked_for_by_field_and_put_into_a_whole_answer() -> None:
    engine = VllmEngine()
    body = {"prompt": "p", "kv_transfer_params": {"eldr": True, "eldr_decode": True, "evil": 1}}
    assert engine.wants_counts(body)
    assert not engine.wants_counts({"prompt": "p", "kv_transfer_params": {"eldr": 1}})
    assert engine.decode_request(body, PARAMETERS)["kv_transfer_params"] == {
        **PARAMETERS,
        "eldr_decode": True,
    }
    assert engine.decode_request(body, None)["kv_transfer_params"] == {"eldr_decode": True}
    counts = engine.read_counts({"kv_transfer_params": {"eldr": encode_counts(COUNTS)}})
    assert counts is not None
    answer = engine.put_counts({"id": "a", "kv_transfer_params": {"eldr_decode": {"v": 1}}}, counts)
    assert answer == {
        "id": "a", "kv_transfer_params": {"eldr_decode": {"v": 1}, "eldr": encode_counts(COUNTS)}
    }  # fmt: skip
    assert engine.put_counts({"kv_transfer_params": None}, counts)["kv_transfer_params"].keys() == {"eldr"}
