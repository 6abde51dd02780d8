import json
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from eldr_runtime.errors import EldrError, InvalidTrace, UnreadableFile
from eldr_runtime.trace_files import save_trace
from eldr_runtime.trace_import import import_raw, open_trace


def write_decode_ids(folder: Path, lengths: tuple[int, ...] = (9, 3), n_rows: int = 2) -> np.ndarray:
    """GPT-OSS-20B layout: token t chooses experts t, t + 1, t + 2, t + 3 in every layer."""
    first = np.arange(sum(lengths), dtype=np.uint8)[:, None, None] % 28
    topk = np.broadcast_to(first + np.arange(4, dtype=np.uint8), (sum(lengths), 24, 4))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    np.savez(folder / "decode_topk.npz", topk=topk, offsets=offsets)
    rows = [{"category": f"topic {i}", "n_tokens": 1} for i in range(n_rows)]
    (folder / "requests.json").write_text(json.dumps(rows))
    return topk


def write_language_counts(folder: Path, n_moved: int = 0) -> None:
    """Qwen3 layout: 1,600 tokens, 100 for each of 128 experts, of which `n_moved` are lost in layer 0."""
    counts = np.full((1, 48, 128), 100, dtype=np.int32)
    counts[0, 0, 0] -= n_moved
    tokens, languages = np.array([1600]), np.array(["en"])
    np.savez(folder / "prefill_counts.npz", counts=counts, total_tokens=tokens, langs=languages)


class TestDecodeIds:
    def test_first_quarter_is_the_signature_by_hand(self, tmp_path: Path) -> None:
        write_decode_ids(tmp_path)
        trace = import_raw(tmp_path)
        # 9 tokens: 2 and 7. 3 tokens: 0 would be a quarter, at least 1 is taken.
        assert trace.prompt_tokens.tolist() == [2, 1]
        assert trace.covered_tokens.tolist() == [2, 1]
        assert trace.decode_steps is not None
        assert trace.decode_steps.tolist() == [7, 2]
        assert trace.prefill_counts[0, 5, :6].tolist() == [1, 2, 2, 2, 1, 0]
        assert trace.decode_counts is not None
        # Tokens 2 to 8: expert 2 once, 3 twice, ... 11 once.
        assert trace.decode_counts[0, 23, :13].tolist() == [0, 0, 1, 2, 3, 4, 4, 4, 4, 3, 2, 1, 0]
        assert trace.labels == ("topic 0", "topic 1")
        assert trace.signature_note is not None
        assert "first quarter of the decode tokens" in trace.signature_note

    def test_labels_are_domains_where_the_data_set_is_known(self, tmp_path: Path) -> None:
        write_decode_ids(tmp_path)
        rows = [{"dataset": "mmlu_dev", "category": "anatomy"}, {"dataset": "chats", "category": "anatomy"}]
        (tmp_path / "requests.json").write_text(json.dumps(rows))
        assert import_raw(tmp_path).labels == ("medical", "anatomy")

    def test_a_request_of_one_token(self, tmp_path: Path) -> None:
        write_decode_ids(tmp_path, lengths=(4, 1))
        with pytest.raises(InvalidTrace, match="tokens of a request is 1; must be at least 2"):
            import_raw(tmp_path)

    def test_another_number_of_categories(self, tmp_path: Path) -> None:
        write_decode_ids(tmp_path, n_rows=3)
        with pytest.raises(InvalidTrace, match=r"len\(labels\) is 3; must be 2"):
            import_raw(tmp_path)

    def test_ids_of_another_type(self, tmp_path: Path) -> None:
        topk = write_decode_ids(tmp_path).astype(np.int32)
        np.savez(tmp_path / "decode_topk.npz", topk=topk, offsets=np.array([0, 9, 12]))
        with pytest.raises(InvalidTrace, match="topk dtype is 'int32'; must be uint8"):
            import_raw(tmp_path)

    @pytest.mark.parametrize(
        ("offsets", "message"),
        [
            (np.array([0.0, np.nan, 12.0]), "offsets dtype is 'float64'; must be integers"),
            (np.array(["0", "9", "12"]), "offsets dtype is '<U2'; must be integers"),
            (np.array([[0, 9, 12]]), r"offsets shape is \(1, 3\); must be 1 axes"),
            (np.array(12), r"offsets shape is \(\); must be 1 axes"),
        ],
    )
    def test_offsets_that_are_none(self, tmp_path: Path, offsets: np.ndarray, message: str) -> None:
        topk = write_decode_ids(tmp_path)
        np.savez(tmp_path / "decode_topk.npz", topk=topk, offsets=offsets)
        with pytest.raises(InvalidTrace, match=message):
            import_raw(tmp_path)

    def test_an_archive_damaged_anywhere_is_refused_or_read(self, tmp_path: Path) -> None:
        write_decode_ids(tmp_path)
        path = tmp_path / "decode_topk.npz"
        whole = path.read_bytes()
        for cut in range(0, len(whole), 97):
            path.write_bytes(whole[:cut])
            with pytest.raises(UnreadableFile):
                import_raw(tmp_path)
        # The central directory, which says how each array is compressed and where it stands.
        directory = whole.index(b"PK\x01\x02")
        for at in range(directory, len(whole)):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
            with suppress(EldrError):
                import_raw(tmp_path)

    @pytest.mark.parametrize("text", ["{", "[1]", '["category"]', '[{"dataset": "x"}]', "3", "[" * 9999])
    def test_categories_that_cannot_be_read(self, tmp_path: Path, text: str) -> None:
        write_decode_ids(tmp_path)
        (tmp_path / "requests.json").write_text(text)
        with pytest.raises(UnreadableFile, match=r"requests\.json: not a list of requests"):
            import_raw(tmp_path)


class TestLanguageCounts:
    def test_one_row_a_language(self, tmp_path: Path) -> None:
        write_language_counts(tmp_path)
        trace = import_raw(tmp_path)
        assert not trace.has_decode
        assert trace.labels == ("en",)
        assert (trace.prefill_counts == 100).all()
        assert trace.signature_note is not None
        assert "by up to 0" in trace.signature_note

    def test_a_missed_sum_is_restored_and_said(self, tmp_path: Path) -> None:
        write_language_counts(tmp_path, n_moved=10)
        trace = import_raw(tmp_path)
        layer = trace.prefill_counts[0, 0]
        assert layer.sum() == 8 * 1600
        # 10 of 12,790: 100 becomes 100.08, so the ten largest remainders gain one, and 90 stays.
        assert layer[0] == 90
        assert sorted(layer[1:].tolist()) == [100] * 117 + [101] * 10
        assert trace.signature_note is not None
        assert "by up to 10" in trace.signature_note

    def test_a_sum_too_far_off_is_refused(self, tmp_path: Path) -> None:
        write_language_counts(tmp_path, n_moved=13)
        with pytest.raises(InvalidTrace, match=r"sum of counts is 12787; must be within 0\.1% of"):
            import_raw(tmp_path)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"counts": np.full((1, 48, 128), np.nan)}, "counts dtype is 'float64'; must be integers"),
            ({"counts": np.full((48, 128), 100)}, r"counts shape is \(48, 128\); must be 3 axes"),
            ({"counts": np.full((1, 48, 64), 200)}, r"counts shape is \(1, 48, 64\); must be \(1, 48, 128\)"),
            ({"counts": np.full((1, 48, 128), -100)}, "counts is -100; must be from 0"),
            ({"total_tokens": np.array([0])}, "total_tokens is 0; must be from 1"),
            ({"total_tokens": np.array([2**40])}, f"total_tokens is {2**40}; must be from 1 to 4294967295"),
            ({"total_tokens": np.array([1, 2])}, r"counts shape is \(1, 48, 128\); must be \(2, 48, 128\)"),
            ({"total_tokens": np.array(1600)}, r"total_tokens shape is \(\); must be 1 axes"),
            ({"langs": np.array("en")}, r"langs shape is \(\); must be 1 axis"),
        ],
    )
    def test_counts_that_are_none(self, tmp_path: Path, changes: dict[str, np.ndarray], message: str) -> None:
        arrays = {
            "counts": np.full((1, 48, 128), 100),
            "total_tokens": np.array([1600]),
            "langs": np.array(["en"]),
        }
        np.savez(tmp_path / "prefill_counts.npz", **(arrays | changes))
        with pytest.raises(InvalidTrace, match=message):
            import_raw(tmp_path)

    def test_an_archive_without_its_arrays(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "prefill_counts.npz", counts=np.zeros(3))
        with pytest.raises(UnreadableFile, match="not an archive of counts, total_tokens, langs"):
            import_raw(tmp_path)

    def test_not_an_archive(self, tmp_path: Path) -> None:
        (tmp_path / "prefill_counts.npz").write_bytes(b"PK\x03\x04 torn")
        with pytest.raises(UnreadableFile, match="not an archive"):
            import_raw(tmp_path)


class TestOpenTrace:
    def test_a_folder_and_a_pack_made_of_it(self, tmp_path: Path) -> None:
        write_decode_ids(tmp_path)
        from_folder = open_trace(tmp_path)
        save_trace(from_folder, tmp_path / "pack")
        from_pack = open_trace(tmp_path / "pack")
        assert (from_pack.prefill_counts == from_folder.prefill_counts).all()
        assert from_pack.signature_note == from_folder.signature_note

    def test_an_unknown_folder(self, tmp_path: Path) -> None:
        with pytest.raises(UnreadableFile, match=r"neither decode_topk\.npz nor prefill_counts\.npz"):
            open_trace(tmp_path)
