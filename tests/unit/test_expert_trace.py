from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from eldr_runtime.errors import InvalidTrace
from eldr_runtime.expert_trace import ExpertTrace, check_counts, count_topk
from eldr_runtime.model_shape import ModelShape

SHAPE = ModelShape(model="tiny", n_layers=2, n_experts=3, top_k=2)


def make_trace(n_requests: int = 2, **changes: object) -> ExpertTrace:
    """2 layers, 3 experts, top-2; every request has 4 prompt tokens and 2 decode steps."""
    counts = np.array([[4, 3, 1], [2, 2, 4]], dtype=np.uint32)
    decode = np.array([[2, 1, 1], [0, 2, 2]], dtype=np.uint32)
    trace = ExpertTrace(
        shape=SHAPE,
        prefill_counts=np.stack([counts] * n_requests),
        prompt_tokens=np.full(n_requests, 4),
        covered_tokens=np.full(n_requests, 4),
        decode_counts=np.stack([decode] * n_requests),
        decode_steps=np.full(n_requests, 2),
        labels=tuple(f"label {i}" for i in range(n_requests)),
        sessions=tuple(f"session {i}" for i in range(n_requests)),
        arrival_seconds=np.arange(n_requests, dtype=np.float64),
    )
    return replace(trace, **changes)  # type: ignore[arg-type]


def changed(array: np.ndarray, position: tuple[int, ...], value: float) -> np.ndarray:
    copy = array.copy()
    copy[position] = value
    return copy


class TestExpertTrace:
    def test_decode_share_is_counts_over_steps(self) -> None:
        share = make_trace().decode_share
        assert share.dtype == np.float32
        assert_array_equal(share[1], np.array([[1, 0.5, 0.5], [0, 1, 1]], dtype=np.float32))

    def test_no_decode_share_without_decode_counts(self) -> None:
        trace = make_trace(decode_counts=None, decode_steps=None)
        assert not trace.has_decode
        with pytest.raises(InvalidTrace, match="decode_counts is None"):
            _ = trace.decode_share

    def test_select_takes_every_field_along(self) -> None:
        gate = np.arange(18, dtype=np.float32).reshape(3, 2, 3)
        trace = make_trace(3, gate_prob=gate, gate_logit=-gate)
        chosen = trace.select(np.array([2, 0]))
        assert len(chosen) == 2
        assert chosen.labels == ("label 2", "label 0")
        assert chosen.sessions == ("session 2", "session 0")
        assert chosen.arrival_seconds is not None
        assert chosen.arrival_seconds.tolist() == [2.0, 0.0]
        assert chosen.gate_prob is not None
        assert chosen.gate_logit is not None
        assert_array_equal(chosen.gate_prob, gate[[2, 0]])
        assert_array_equal(chosen.gate_logit, -gate[[2, 0]])
        assert chosen.has_decode

    def test_select_by_booleans(self) -> None:
        chosen = make_trace(3).select(np.array([False, True, False]))
        assert chosen.labels == ("label 1",)

    def test_select_of_nothing_is_refused(self) -> None:
        with pytest.raises(InvalidTrace, match="n_requests is 0; must be at least 1"):
            make_trace().select(np.array([False, False]))


class TestWithoutUncovered:
    @staticmethod
    def with_uncovered(n_requests: int, n_uncovered: int) -> ExpertTrace:
        trace = make_trace(n_requests)
        counts, covered = trace.prefill_counts.copy(), trace.covered_tokens.copy()
        counts[:n_uncovered], covered[:n_uncovered] = 0, 0
        return replace(trace, prefill_counts=counts, covered_tokens=covered)

    def test_leaves_out_and_reports(self) -> None:
        kept, n_left_out = self.with_uncovered(100, 1).without_uncovered()
        assert (len(kept), n_left_out) == (99, 1)
        assert kept.labels is not None
        assert kept.labels[0] == "label 1"

    def test_more_than_one_percent_is_an_error(self) -> None:
        message = "requests without counts is 2; must be at most 1% of 100 requests"
        with pytest.raises(InvalidTrace, match=message):
            self.with_uncovered(100, 2).without_uncovered()

    def test_full_cover_is_the_same_trace(self) -> None:
        trace = make_trace()
        assert trace.without_uncovered() == (trace, 0)


TRACE = make_trace()
GATE = np.ones((2, 2, 3), dtype=np.float32)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"prefill_counts": changed(TRACE.prefill_counts, (1, 0, 2), 2)},
            r"sum of prefill_counts\[1, 0\] is 9; must be top_k \* tokens = 2 .* \(tokens is 4\)",
        ),
        (
            {"prefill_counts": np.array([[[5, 3, 0], [2, 2, 4]]] * 2, dtype=np.uint32)},
            r"max of prefill_counts\[0, 0\] is 5; must be at most tokens.*tokens is 4",
        ),
        (
            {"prefill_counts": TRACE.prefill_counts.astype(np.int64)},
            "prefill_counts dtype is 'int64'; must be",
        ),
        ({"prefill_counts": TRACE.prefill_counts[0]}, r"prefill_counts shape is \(2, 3\); must be 3 axes"),
        ({"prefill_counts": TRACE.prefill_counts[..., :2]}, r"prefill_counts shape is \(2, 2, 2\); must be"),
        (
            {"prefill_counts": TRACE.prefill_counts.tolist()},
            "prefill_counts is 'list'; must be a numpy array",
        ),
        ({"prompt_tokens": np.array([4, 0])}, r"prompt_tokens\[1\] is 0; must be at least 1"),
        ({"prompt_tokens": np.array([4])}, r"prompt_tokens shape is \(1,\); must be \(2,\)"),
        ({"prompt_tokens": np.array([4.0, 4.0])}, "prompt_tokens dtype is 'float64'; must be int64"),
        ({"covered_tokens": np.array([5, 4])}, r"covered_tokens\[0\] is 5; must be from 0 to prompt_tokens"),
        ({"covered_tokens": np.array([4, -1])}, r"covered_tokens\[1\] is -1; must be from 0"),
        ({"decode_steps": None}, "decode_steps is None; must be present together with decode_counts"),
        ({"decode_counts": None}, "decode_counts is None; must be present together with decode_steps"),
        ({"decode_steps": np.array([2, 0])}, r"decode_steps\[1\] is 0; must be at least 1"),
        ({"decode_steps": np.array([2, 3])}, r"sum of decode_counts\[1, 0\] is 4; must be top_k"),
        ({"gate_prob": changed(GATE, (1, 0, 2), np.nan)}, r"gate_prob\[1, 0, 2\] is nan; must be finite"),
        ({"gate_prob": changed(GATE, (0, 1, 0), -1)}, r"gate_prob\[0, 1, 0\] is -1.0; must be at least 0"),
        ({"gate_logit": changed(GATE, (0, 1, 0), np.inf)}, r"gate_logit\[0, 1, 0\] is inf; must be finite"),
        ({"gate_logit": GATE[:1]}, r"gate_logit shape is \(1, 2, 3\); must be \(2, 2, 3\)"),
        ({"gate_logit": GATE.astype(np.float64)}, "gate_logit dtype is 'float64'; must be float32"),
        ({"labels": ("a",)}, r"len\(labels\) is 1; must be 2 entries"),
        ({"sessions": ()}, r"len\(sessions\) is 0; must be 2 entries"),
        ({"arrival_seconds": np.array([0, np.nan])}, r"arrival_seconds\[1\] is nan; must be finite"),
        ({"arrival_seconds": np.zeros(3)}, r"arrival_seconds shape is \(3,\); must be \(2,\)"),
    ],
)
def test_bad_traces_name_field_value_and_limit(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidTrace, match=message):
        make_trace(**changes)


def test_sums_beyond_32_bits_do_not_wrap() -> None:
    # 2 * 2**31 wraps to 0 in uint32, which would pass for no tokens at all.
    counts = np.full((1, 2), 2**31, dtype=np.uint32)
    shape = ModelShape(model="tiny", n_layers=1, n_experts=2, top_k=2)
    check_counts(counts, 2**31, shape, "counts")
    with pytest.raises(InvalidTrace, match=r"sum of counts\[0\] is 4294967296; must be"):
        check_counts(counts, 0, shape, "counts")


class TestCountTopk:
    def test_by_hand(self) -> None:
        topk = np.array([[[0, 1], [2, 1]], [[0, 2], [1, 0]], [[0, 1], [1, 2]]], dtype=np.uint8)
        counts = count_topk(topk, n_experts=3)
        assert counts.dtype == np.uint32
        assert counts.tolist() == [[3, 2, 1], [1, 3, 2]]

    @pytest.mark.parametrize(("dtype", "unknown"), [(np.uint8, 255), (np.uint16, 65535)])
    def test_unknown_ids_are_dropped(self, dtype: type[np.generic], unknown: int) -> None:
        topk = np.array([[[0, unknown]], [[unknown, unknown]], [[2, 0]]], dtype=dtype)
        assert count_topk(topk, n_experts=3).tolist() == [[2, 0, 1]]

    def test_255_experts_fit_one_byte(self) -> None:
        topk = np.array([[[254, 255]]], dtype=np.uint8)
        counts = count_topk(topk, n_experts=255)
        assert counts.sum() == 1
        assert counts[0, 254] == 1

    def test_offsets_beyond_16_bits(self) -> None:
        topk = np.full((3, 256, 1), 1023, dtype=np.uint16)
        counts = count_topk(topk, n_experts=1024)
        assert (counts[:, 1023] == 3).all()
        assert counts.sum() == 3 * 256

    def test_no_tokens(self) -> None:
        assert count_topk(np.zeros((0, 2, 2), dtype=np.uint8), n_experts=3).tolist() == [[0] * 3] * 2

    @pytest.mark.parametrize(
        ("topk", "n_experts", "message"),
        [
            (np.array([[[0, 3]]], dtype=np.uint8), 3, r"topk\[0, 0, 1\] is 3; must be below 3, or 255"),
            (np.array([[[0, 1]]], dtype=np.int64), 3, "topk dtype is 'int64'; must be uint8 or uint16"),
            (np.array([[0, 1]], dtype=np.uint8), 3, r"topk shape is \(1, 2\)"),
            (np.array([[[0, 1]]], dtype=np.uint8), 256, "n_experts is 256; must be at most 255 for uint8"),
        ],
    )
    def test_bad_ids(self, topk: np.ndarray, n_experts: int, message: str) -> None:
        with pytest.raises(InvalidTrace, match=message):
            count_topk(topk, n_experts)

    @settings(deadline=None)
    @given(
        seed=st.integers(0, 2**32 - 1),
        n_tokens=st.integers(0, 20),
        n_layers=st.integers(1, 4),
        n_experts=st.integers(2, 40),
        is_wide=st.booleans(),
    )
    def test_sums_and_matches_counting_one_by_one(
        self, seed: int, n_tokens: int, n_layers: int, n_experts: int, is_wide: bool
    ) -> None:
        rng = np.random.default_rng(seed)
        top_k = int(rng.integers(1, n_experts + 1))
        order = np.argsort(rng.random((n_tokens, n_layers, n_experts)), axis=-1)[..., :top_k]
        topk = order.astype(np.uint16 if is_wide else np.uint8)
        counts = count_topk(topk, n_experts)
        shape = ModelShape(model="m", n_layers=n_layers, n_experts=n_experts, top_k=top_k)
        check_counts(counts, n_tokens, shape, "counts")
        expected = (topk[..., None] == np.arange(n_experts)).sum(axis=(0, 2))
        assert_allclose(counts, expected, rtol=0)
