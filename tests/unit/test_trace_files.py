import json
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from safetensors.numpy import load_file, save_file

from eldr_runtime.errors import InvalidTrace, UnreadableFile
from eldr_runtime.expert_trace import ExpertTrace, count_topk
from eldr_runtime.model_shape import ModelShape
from eldr_runtime.trace_files import METADATA_KEY, count_by_request, load_trace, save_trace

# Two requests of 2 and 1 decode tokens, 2 layers, top-1 of 3 experts.
DECODE_TOPK = np.array([[[0], [2]], [[0], [1]], [[1], [1]]], dtype=np.uint8)
DECODE_COUNTS = np.array([[[2, 0, 0], [0, 1, 1]], [[0, 1, 0], [0, 1, 0]]], dtype=np.uint32)
TENSORS: dict[str, np.ndarray] = {
    "prefill_counts": np.array([[[3, 0, 1], [4, 0, 0]], [[0, 1, 0], [1, 0, 0]]], dtype=np.uint32),
    "prompt_tokens": np.array([4, 1]),
    "decode_topk": DECODE_TOPK,
    "decode_offsets": np.array([0, 2, 3]),
}
HEADER: dict[str, object] = {
    "format": 1,
    "model": "tiny",
    "n_layers": 2,
    "n_experts": 3,
    "top_k": 1,
    "source": "by hand",
    "licence": "MIT",
}


def write_pack(
    folder: Path, tensors: dict[str, np.ndarray] | None = None, header: dict[str, object] | None = None
) -> Path:
    path = folder / "pack.safetensors"
    metadata = {METADATA_KEY: json.dumps(HEADER if header is None else header)}
    save_file(TENSORS if tensors is None else tensors, path, metadata=metadata)
    return path


def assert_same(found: ExpertTrace, expected: ExpertTrace) -> None:
    for field in fields(ExpertTrace):
        left, right = getattr(found, field.name), getattr(expected, field.name)
        if isinstance(right, np.ndarray):
            assert left.dtype == right.dtype
            assert_array_equal(left, right, err_msg=field.name)
        else:
            assert left == right, field.name


def random_trace(seed: int, n_requests: int, *, with_optional: bool) -> ExpertTrace:
    rng = np.random.default_rng(seed)
    shape = ModelShape(model="é 模型", n_layers=2, n_experts=5, top_k=2)

    def counts(n_tokens: np.ndarray) -> np.ndarray:
        order = [np.argsort(rng.random((int(n), 2, 5)), axis=-1)[..., :2] for n in n_tokens]
        return np.stack([count_topk(topk.astype(np.uint8), 5) for topk in order])

    prompt_tokens = rng.integers(1, 9, n_requests)
    covered_tokens = prompt_tokens - rng.integers(0, 2, n_requests)
    trace = ExpertTrace(
        shape=shape,
        prefill_counts=counts(covered_tokens),
        prompt_tokens=prompt_tokens,
        covered_tokens=covered_tokens,
    )
    if not with_optional:
        return trace
    decode_steps = rng.integers(1, 9, n_requests)
    return replace(
        trace,
        decode_counts=counts(decode_steps),
        decode_steps=decode_steps,
        gate_prob=rng.random((n_requests, 2, 5), dtype=np.float32),
        gate_logit=rng.standard_normal((n_requests, 2, 5), dtype=np.float32),
        labels=tuple(rng.choice(["math", "日本"], n_requests).tolist()),
        sessions=tuple(f"s{i}" for i in range(n_requests)),
        arrival_seconds=np.sort(rng.random(n_requests)),
        source="drawn",
        licence="none",
        signature_note="a note",
    )


class TestSaveAndLoad:
    @settings(max_examples=40, deadline=None)
    @given(seed=st.integers(0, 2**32 - 1), n_requests=st.integers(1, 6), with_optional=st.booleans())
    def test_back_the_same_and_equal_bytes(
        self, tmp_path_factory: pytest.TempPathFactory, seed: int, n_requests: int, with_optional: bool
    ) -> None:
        folder = tmp_path_factory.mktemp("packs")
        trace = random_trace(seed, n_requests, with_optional=with_optional)
        save_trace(trace, folder / "first")
        back = load_trace(folder / "first")
        assert_same(back, trace)
        save_trace(back, folder / "second")
        assert (folder / "first").read_bytes() == (folder / "second").read_bytes()
        assert sorted(path.name for path in folder.iterdir()) == ["first", "second"]

    def test_strided_arrays_are_written_in_order(self, tmp_path: Path) -> None:
        trace = random_trace(1, 4, with_optional=True)
        counts = np.asfortranarray(trace.prefill_counts)
        save_trace(replace(trace, prefill_counts=counts), tmp_path / "pack")
        assert_same(load_trace(tmp_path / "pack"), trace)

    def test_metadata_is_one_sorted_entry(self, tmp_path: Path) -> None:
        save_trace(random_trace(1, 2, with_optional=True), tmp_path / "pack")
        raw = (tmp_path / "pack").read_bytes()
        size = int.from_bytes(raw[:8], "little")
        metadata = json.loads(raw[8 : 8 + size])["__metadata__"]
        assert list(metadata) == [METADATA_KEY]
        names = list(json.loads(metadata[METADATA_KEY]))
        assert names == sorted(names)

    def test_others_may_read_it_as_any_new_file(self, tmp_path: Path) -> None:
        save_trace(random_trace(1, 2, with_optional=False), tmp_path / "pack")
        (tmp_path / "plain").touch()
        assert (tmp_path / "pack").stat().st_mode == (tmp_path / "plain").stat().st_mode

    def test_failure_leaves_nothing_behind(self, tmp_path: Path) -> None:
        place = tmp_path / "taken"
        place.mkdir()
        with pytest.raises(OSError, match="taken"):
            save_trace(random_trace(1, 2, with_optional=False), place)
        assert [path.name for path in tmp_path.iterdir()] == ["taken"]
        assert not list(place.iterdir())

    def test_a_new_save_replaces_the_old_one(self, tmp_path: Path) -> None:
        for seed in (1, 2):
            save_trace(random_trace(seed, 3, with_optional=True), tmp_path / "pack")
        assert_same(load_trace(tmp_path / "pack"), random_trace(2, 3, with_optional=True))


class TestDecodeIds:
    def test_counted_on_load_by_hand(self, tmp_path: Path) -> None:
        trace = load_trace(write_pack(tmp_path))
        assert trace.decode_counts is not None
        assert trace.decode_steps is not None
        assert_array_equal(trace.decode_counts, DECODE_COUNTS)
        assert trace.decode_steps.tolist() == [2, 1]
        assert trace.covered_tokens.tolist() == [4, 1]
        assert (trace.source, trace.licence) == ("by hand", "MIT")

    @pytest.mark.parametrize(("dtype", "unknown"), [(np.uint8, 255), (np.uint16, 65535)])
    def test_a_token_with_an_unknown_id_is_no_step(
        self, tmp_path: Path, dtype: type[np.generic], unknown: int
    ) -> None:
        topk = DECODE_TOPK.astype(dtype)
        topk[1, 1, 0] = unknown
        trace = load_trace(write_pack(tmp_path, TENSORS | {"decode_topk": topk}))
        assert trace.decode_steps is not None
        assert trace.decode_counts is not None
        assert trace.decode_steps.tolist() == [1, 1]
        assert trace.decode_counts[0].tolist() == [[1, 0, 0], [0, 0, 1]]

    def test_ids_of_the_wrong_rank(self) -> None:
        with pytest.raises(InvalidTrace, match=r"decode_topk shape is \(3, 2\); must be"):
            count_by_request(DECODE_TOPK[..., 0], np.array([0, 3]), 3)


class TestUnreadable:
    def test_missing(self, tmp_path: Path) -> None:
        with pytest.raises(UnreadableFile, match="no readable trace pack"):
            load_trace(tmp_path / "absent")

    @pytest.mark.parametrize("keep", [0, 7, 40, -1])
    def test_truncated(self, tmp_path: Path, keep: int) -> None:
        path = write_pack(tmp_path)
        path.write_bytes(path.read_bytes()[:keep])
        with pytest.raises(UnreadableFile, match="no readable trace pack"):
            load_trace(path)

    def test_of_another_format(self, tmp_path: Path) -> None:
        path = tmp_path / "pack.npz"
        np.savez(path, **TENSORS)
        with pytest.raises(UnreadableFile, match="no readable trace pack"):
            load_trace(path)

    def test_safetensors_of_another_kind(self, tmp_path: Path) -> None:
        save_file(TENSORS, tmp_path / "weights")
        with pytest.raises(UnreadableFile, match="not a trace pack"):
            load_trace(tmp_path / "weights")

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("{", "is not JSON"),
            ("[" * 99_999, "is not JSON"),
            ('{"format": ' + "9" * 5000 + "}", "is not JSON"),
            ("[]", "is not a JSON object"),
        ],
    )
    def test_broken_metadata(self, tmp_path: Path, text: str, message: str) -> None:
        save_file(TENSORS, tmp_path / "pack", metadata={METADATA_KEY: text})
        with pytest.raises(UnreadableFile, match=message):
            load_trace(tmp_path / "pack")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prefill_counts": TENSORS["prefill_counts"].astype(np.int64)}, "prefill_counts dtype is 'I64'"),
        ({"prompt_tokens": np.array([4, 2])}, r"sum of prefill_counts\[1, 0\] is 1"),
        ({"covered_tokens": np.array([4, 2])}, r"covered_tokens\[1\] is 2"),
        ({"decode_topk": DECODE_TOPK.astype(np.int16)}, "decode_topk dtype is 'I16'; must be U8 or U16"),
        ({"decode_topk": DECODE_TOPK + 1}, r"topk\[0, 1, 0\] is 3; must be below 3, or 255"),
        ({"decode_counts": DECODE_COUNTS}, "decode_counts is 'present'; must be absent beside decode_topk"),
        ({"decode_offsets": np.array([0, 2, 4])}, r"decode_offsets\[-1\] is 4; must be 3"),
        ({"decode_offsets": np.array([1, 2, 3])}, r"decode_offsets\[0\] is 1; must be 0"),
        ({"decode_offsets": np.array([0, 4, 3])}, r"decode_offsets\[2\] is 3; must be at least 4"),
        ({"decode_offsets": np.array([[0, 3]])}, r"decode_offsets shape is \(1, 2\)"),
        ({"decode_offsets": np.array([0, 3])}, r"decode_offsets shape is \(2,\); must be \(3,\)"),
        ({"arrival_seconds": np.zeros(2, dtype=np.float32)}, "arrival_seconds dtype is 'F32'; must be F64"),
        ({"gate_prob": np.full((2, 2, 3), np.nan, np.float32)}, r"gate_prob\[0, 0, 0\] is nan"),
        (
            {"gate_logit": np.full((2, 2, 3), -2e15, np.float32)},
            r"gate_logit.*finite, at most 1e\+15 in size",
        ),
        ({"decode_topk": DECODE_TOPK[:, :1]}, r"decode_topk shape is \(\d, 1, \d\); must be \(n_tokens, 2, "),
        ({"decode_topk": DECODE_TOPK[0]}, r"decode_topk shape is .*; must be \(n_tokens, 2, "),
        (
            {"prefill_counts": np.zeros(2, np.uint32)},
            r"prefill_counts shape is \(2,\); must be \(n_requests, 2, ",
        ),
        # 100,001 requests claimed by a file of 800 KB would be counted into far more.
        (
            {"decode_offsets": np.zeros(100_001, np.int64)},
            r"decode_offsets shape is \(100001,\); must be \(3,\)",
        ),
    ],
)
def test_bad_tensors(tmp_path: Path, changes: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(InvalidTrace, match=message):
        load_trace(write_pack(tmp_path, TENSORS | changes))


@pytest.mark.parametrize("name", ["prefill_counts", "prompt_tokens", "decode_offsets"])
def test_missing_tensors(tmp_path: Path, name: str) -> None:
    rest = {key: value for key, value in TENSORS.items() if key != name}
    with pytest.raises(InvalidTrace, match=f"{name} is None; must be present"):
        load_trace(write_pack(tmp_path, rest))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 2}, "format is 2; must be 1"),
        ({"model": None}, "model is ''; must be a non-empty name"),
        ({"model": 3}, "model is 3; must be text"),
        ({"top_k": True}, "top_k is True; must be an integer"),
        ({"n_experts": 4}, r"decode_counts|prefill_counts shape"),
        ({"n_layers": 300}, "n_layers is 300; must be an integer from 1 to 256"),
        ({"labels": ["a"]}, r"len\(labels\) is 1; must be 2"),
        ({"labels": "ab"}, "labels is 'str'; must be a list of texts"),
        ({"labels": ["a", 2]}, r"labels\[1\] is 2; must be text"),
        ({"sessions": ["a", "\ud800"]}, r"sessions\[1\] is .*; must be text"),
        ({"source": "\udfff"}, "source is .*; must be text"),
        ({"format": True}, "format is True; must be an integer"),
        ({"format": 1.0}, "format is 1.0; must be an integer"),
    ],
)
def test_bad_metadata(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidTrace, match=message):
        load_trace(write_pack(tmp_path, header=HEADER | changes))


def test_unknown_tensors_are_ignored(tmp_path: Path) -> None:
    path = write_pack(tmp_path, TENSORS | {"later": np.zeros(3)})
    assert "later" in load_file(path)
    assert len(load_trace(path)) == 2
