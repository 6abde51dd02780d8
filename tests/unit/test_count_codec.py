import json
import zlib
from base64 import b64encode

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from eldr_runtime.count_codec import ExpertCounts, decode_counts, encode_counts
from eldr_runtime.errors import InvalidMessage
from eldr_runtime.expert_trace import count_topk
from eldr_runtime.model_shape import ModelShape

TINY = ModelShape(model="tiny", n_layers=1, n_experts=2, top_k=1)


def make_counts(values: list[int], **changes: int) -> ExpertCounts:
    tokens = {"tokens": sum(values), "covered": sum(values)} | changes
    return ExpertCounts(shape=TINY, counts=np.array([values], dtype=np.uint32), **tokens)


def random_counts(seed: int, shape: ModelShape, n_tokens: int) -> ExpertCounts:
    rng = np.random.default_rng(seed)
    order = np.argsort(rng.random((n_tokens, shape.n_layers, shape.n_experts)), axis=-1)
    counts = count_topk(order[..., : shape.top_k].astype(np.uint16), shape.n_experts)
    return ExpertCounts(shape=shape, counts=counts, tokens=n_tokens, covered=n_tokens)


def packed(values: bytes) -> str:
    return b64encode(zlib.compress(values)).decode()


MESSAGE: dict[str, object] = {
    "v": 1,
    "model": "tiny",
    "layers": 1,
    "experts": 2,
    "top_k": 1,
    "encoding": "zlib+u16",
    "counts": packed(b"\x02\x00\x01\x00"),
    "tokens": 4,
    "covered": 3,
    "cached": 1,
}


def test_message_by_hand() -> None:
    # Little-endian 16-bit 2 and 1.
    counts = decode_counts(MESSAGE)
    assert counts.counts.dtype == np.uint32
    assert counts.counts.tolist() == [[2, 1]]
    assert (counts.tokens, counts.covered, counts.cached) == (4, 3, 1)
    assert counts.shape == TINY


def test_32_bits_only_where_a_count_needs_them() -> None:
    assert encode_counts(make_counts([65_535, 0]))["encoding"] == "zlib+u16"
    message = encode_counts(make_counts([65_536, 1]))
    assert message["encoding"] == "zlib+u32"
    assert decode_counts(message).counts.tolist() == [[65_536, 1]]


def test_a_request_without_counts() -> None:
    counts = decode_counts(encode_counts(make_counts([0, 0], tokens=9)))
    assert (counts.tokens, counts.covered) == (9, 0)


def test_unknown_fields_are_ignored() -> None:
    assert decode_counts(MESSAGE | {"later": [1]}).tokens == 4


def test_numpy_integers_become_json() -> None:
    counts = ExpertCounts(
        shape=TINY, counts=np.array([[1, 2]], dtype=np.uint32), tokens=np.int64(3), covered=np.int64(3)
    )
    assert json.loads(json.dumps(encode_counts(counts)))["tokens"] == 3


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_layers=st.integers(1, 5),
    n_experts=st.integers(2, 20),
    n_tokens=st.integers(1, 30),
)
def test_json_and_back(seed: int, n_layers: int, n_experts: int, n_tokens: int) -> None:
    shape = ModelShape(model="m", n_layers=n_layers, n_experts=n_experts, top_k=min(3, n_experts))
    counts = random_counts(seed, shape, n_tokens)
    text = json.dumps(encode_counts(counts))
    back = decode_counts(json.loads(text))
    assert_array_equal(back.counts, counts.counts)
    assert (back.shape, back.tokens, back.covered, back.cached) == (shape, n_tokens, n_tokens, 0)
    assert json.dumps(encode_counts(back)) == text


def test_a_thousand_tokens_fit_12_kib() -> None:
    shape = ModelShape(model="Qwen/Qwen3-30B-A3B", n_layers=48, n_experts=128, top_k=8)
    rng = np.random.default_rng(1)
    # Skewed use compresses worst: uniform counts need fewer distinct bytes.
    appeal = np.log(rng.gamma(0.5, size=(48, 128))) + rng.gumbel(size=(1000, 48, 128))
    topk = np.argpartition(-appeal, 8, axis=-1)[..., :8].astype(np.uint8)
    counts = ExpertCounts(shape=shape, counts=count_topk(topk, 128), tokens=1000, covered=1000)
    assert len(json.dumps(encode_counts(counts))) <= 12 * 1024


def test_counts_over_one_mebibyte_are_not_sent() -> None:
    shape = ModelShape(model="huge", n_layers=256, n_experts=1024, top_k=512)
    rng = np.random.default_rng(1)
    half = rng.integers(0, 2**31, size=(256, 512), dtype=np.uint32)
    counts = np.concatenate([half, np.uint32(2**31 - 1) - half], axis=1)
    huge = ExpertCounts(shape=shape, counts=counts, tokens=2**31 - 1, covered=2**31 - 1)
    with pytest.raises(InvalidMessage, match="encoded size of counts"):
        encode_counts(huge)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"v": 2}, "v is 2; must be 1"),
        ({"v": True}, "v is True; must be an integer"),
        ({"model": 7}, "model is 7; must be text"),
        ({"model": ""}, "model is ''; must be a non-empty name"),
        ({"layers": 257}, "n_layers is 257; must be an integer from 1 to 256"),
        ({"experts": 1025}, "n_experts is 1025; must be an integer from 2 to 1024"),
        ({"experts": 2.0}, "experts is 2.0; must be an integer"),
        ({"top_k": 3}, "top_k is 3; must be an integer from 1 to 2"),
        ({"encoding": "gzip"}, "encoding is 'gzip'; must be one of zlib.u16, zlib.u32"),
        ({"encoding": None}, "encoding is None; must be text"),
        ({"counts": "a*b="}, "counts is 'text of 4'; must be base64"),
        ({"counts": "é"}, "counts is 'text of 1'; must be base64"),
        ({"counts": b64encode(b"not zlib").decode()}, "counts is '8 bytes'; must be zlib data"),
        ({"counts": packed(b"\x01\x00")}, "inflated size of counts is 2; must be 4"),
        ({"counts": packed(bytes(9_999_999))}, "inflated size of counts is 'more than 4'; must be 4"),
        ({"counts": "A" * (2**20 + 4)}, "encoded size of counts is 1048580; must be at most 1048576"),
        ({"encoding": "zlib+u32"}, "inflated size of counts is 4; must be 8"),
        ({"tokens": 0, "covered": 0}, "tokens is 0; must be an integer from 1"),
        ({"tokens": 2**31, "covered": 3}, "tokens is 2147483648; must be"),
        ({"covered": 5}, "covered is 5; must be an integer from 0 to 4"),
        ({"covered": 2}, r"sum of counts\[0\] is 3; must be top_k"),
        ({"cached": -1}, "cached is -1; must be an integer from 0 to 4"),
        ({"cached": None}, "cached is None; must be an integer"),
    ],
)
def test_bad_messages(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidMessage, match=message):
        decode_counts(MESSAGE | changes)


@pytest.mark.parametrize("field", sorted(set(MESSAGE)))
def test_every_field_is_needed(field: str) -> None:
    with pytest.raises(InvalidMessage, match=f"{field} is None"):
        decode_counts({name: value for name, value in MESSAGE.items() if name != field})


def test_more_tokens_for_one_expert_than_there_are() -> None:
    shape = ModelShape(model="m", n_layers=1, n_experts=3, top_k=2)
    with pytest.raises(InvalidMessage, match=r"max of counts\[0\] is 3; must be at most tokens"):
        ExpertCounts(shape=shape, counts=np.array([[3, 1, 0]], dtype=np.uint32), tokens=2, covered=2)


@pytest.mark.parametrize("cut", [1, 4, 8])
def test_truncated_or_prolonged_streams(cut: int) -> None:
    whole = zlib.compress(b"\x02\x00\x01\x00")
    for bad in (whole[:-cut], whole + b"x" * cut):
        with pytest.raises(InvalidMessage, match="counts"):
            decode_counts(MESSAGE | {"counts": b64encode(bad).decode()})
