"""Expert traces from folders in layouts other than the trace pack."""

import json
import zlib
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from eldr_runtime.array_types import Counts, Ints
from eldr_runtime.errors import InvalidTrace, UnreadableFile
from eldr_runtime.expert_trace import ExpertTrace
from eldr_runtime.model_shape import ModelShape
from eldr_runtime.subject_domains import domain_of
from eldr_runtime.trace_files import count_by_request, load_trace

GPT_OSS_20B = ModelShape(model="openai/gpt-oss-20b", n_layers=24, n_experts=32, top_k=4)
QWEN3_30B_A3B = ModelShape(model="Qwen/Qwen3-30B-A3B", n_layers=48, n_experts=128, top_k=8)
MAX_TOKENS = 2**32 - 1
# What zipfile and numpy raise for damaged archives, unknown compression and shapes no memory holds.
UNREADABLE = (
    OSError,
    ValueError,
    TypeError,
    KeyError,
    EOFError,
    OverflowError,
    MemoryError,
    RuntimeError,
    BadZipFile,
    zlib.error,
)
# Layers of the recorded language counts miss their sum by up to 0.03 %; more means other data.
ROUNDING_LIMIT_SHARE = 0.001


def open_trace(path: Path) -> ExpertTrace:
    """Read a trace from a pack, or from a folder that `import_raw` knows."""
    return import_raw(path) if path.is_dir() else load_trace(path)


def import_raw(folder: Path) -> ExpertTrace:
    """Read a trace from a folder of recorded expert ids or counts.

    Two layouts are known. GPT-OSS-20B: `decode_topk.npz` (`topk`, `offsets`) with `requests.json` (a list
    of objects with `category`, and `dataset` where known) holds decode tokens only: the first quarter of each
    request's tokens, at least one, stands in for its prompt, the rest is its decode phase. Its labels are the
    domains of the categories (`subject_domains`). Qwen3-30B-A3B: `prefill_counts.npz`
    (`counts`, `total_tokens`, `langs`) holds one row of pooled counts a language, and no decode phase.

    Raises
    ------
    UnreadableFile
        Neither layout, or files that cannot be read.
    InvalidTrace
        A trace that contradicts itself.
    """
    if (folder / "decode_topk.npz").is_file():
        return _import_decode_ids(folder)
    if (folder / "prefill_counts.npz").is_file():
        return _import_language_counts(folder)
    raise UnreadableFile(f"{folder}: holds neither decode_topk.npz nor prefill_counts.npz")


def _import_decode_ids(folder: Path) -> ExpertTrace:
    topk, offsets = _read_arrays(folder / "decode_topk.npz", "topk", "offsets")
    labels = _read_domains(folder / "requests.json")
    if topk.dtype != np.uint8:
        raise InvalidTrace(field="topk dtype", value=str(topk.dtype), limit="uint8")
    ids, ends = topk.astype(np.uint8, copy=False), _integers("offsets", offsets, n_axes=1)
    n_tokens = np.diff(ends)
    if (n_tokens < 2).any():
        limit = "at least 2: one for the signature, one for the decode phase"
        raise InvalidTrace(field="tokens of a request", value=int(n_tokens.min()), limit=limit)
    # Each request becomes two stretches: signature part, decode part.
    n_signature = np.maximum(n_tokens // 4, 1)
    cuts = np.sort(np.concatenate([ends, ends[:-1] + n_signature]))
    counts, covered = count_by_request(ids, cuts, GPT_OSS_20B.n_experts)
    return ExpertTrace(
        shape=GPT_OSS_20B,
        prefill_counts=np.ascontiguousarray(counts[0::2]),
        prompt_tokens=n_signature,
        covered_tokens=covered[0::2].copy(),
        decode_counts=np.ascontiguousarray(counts[1::2]),
        decode_steps=covered[1::2].copy(),
        labels=labels,
        source="AmanPriyanshu/GPT-OSS-MoE-ExpertFingerprinting @ 72b368f60045",
        licence="Apache-2.0",
        signature_note="no prefill tokens recorded: signature from the first quarter of the decode tokens, "
        "decode phase from the rest",
    )


def _import_language_counts(folder: Path) -> ExpertTrace:
    counts, total_tokens, languages = _read_arrays(
        folder / "prefill_counts.npz", "counts", "total_tokens", "langs"
    )
    n_tokens = _integers("total_tokens", total_tokens, n_axes=1)
    if n_tokens.size and not 1 <= n_tokens.min() <= n_tokens.max() <= MAX_TOKENS:
        worst = int(n_tokens.min() if n_tokens.min() < 1 else n_tokens.max())
        raise InvalidTrace(field="total_tokens", value=worst, limit=f"from 1 to {MAX_TOKENS}")
    found = _integers("counts", counts, n_axes=3)
    expected = (len(n_tokens), *QWEN3_30B_A3B.counts_shape)
    if found.shape != expected or not found.size:
        raise InvalidTrace(field="counts shape", value=found.shape, limit=f"{expected}, at least one row")
    if not 0 <= found.min() <= found.max() <= MAX_TOKENS:
        worst = int(found.min() if found.min() < 0 else found.max())
        raise InvalidTrace(field="counts", value=worst, limit=f"from 0 to {MAX_TOKENS}")
    if languages.ndim != 1:
        raise InvalidTrace(field="langs shape", value=languages.shape, limit="1 axis")
    whole, n_missed = _restore_sums(found, n_tokens)
    return ExpertTrace(
        shape=QWEN3_30B_A3B,
        prefill_counts=whole,
        prompt_tokens=n_tokens,
        covered_tokens=n_tokens,
        labels=tuple(str(language) for language in languages),
        source="conctsai/Multilingualism-in-Mixture-of-Experts-LLMs @ ea1d65b66bea",
        licence="MIT",
        signature_note="one row a language, pooled over 250 problems, no decode phase; recorded layers miss "
        f"the sum of 8 selections a token by up to {n_missed}, and were scaled to it",
    )


def _restore_sums(counts: Ints, n_tokens: Ints) -> tuple[Counts, int]:
    """Scale `(n_rows, n_layers, n_experts)` until each layer sums to `top_k * n_tokens`.

    What rounding down leaves over goes to the largest remainders. Also returns the
    largest difference between a recorded and a due sum.
    """
    due = np.broadcast_to((QWEN3_30B_A3B.top_k * n_tokens)[:, None], counts.shape[:2])
    found = counts.sum(axis=-1)
    n_missed = np.abs(found - due)
    if (n_missed > ROUNDING_LIMIT_SHARE * due).any():
        limit = f"within {ROUNDING_LIMIT_SHARE:.1%} of top_k * total_tokens"
        raise InvalidTrace(field="sum of counts", value=int(found.flat[n_missed.argmax()]), limit=limit)
    exact = counts * (due / found)[..., None]
    whole = np.floor(exact).astype(np.int64)
    rank = np.argsort(np.argsort(whole - exact, axis=-1, kind="stable"), axis=-1)
    whole += rank < (due - whole.sum(axis=-1))[..., None]
    return whole.astype(np.uint32), int(n_missed.max())


def _integers(field: str, array: NDArray[np.generic], *, n_axes: int) -> Ints:
    if array.dtype.kind not in "iu":
        raise InvalidTrace(field=f"{field} dtype", value=str(array.dtype), limit="integers")
    if array.ndim != n_axes:
        raise InvalidTrace(field=f"{field} shape", value=array.shape, limit=f"{n_axes} axes")
    return array.astype(np.int64)


def _read_arrays(path: Path, *names: str) -> list[NDArray[np.generic]]:
    try:
        # np.load leaves a file it opened itself open when it is no archive.
        with path.open("rb") as handle, np.load(handle, allow_pickle=False) as archive:
            return [archive[name] for name in names]
    except UNREADABLE as error:
        raise UnreadableFile(f"{path}: not an archive of {', '.join(names)}: {error}") from error


def _read_domains(path: Path) -> tuple[str, ...]:
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        return tuple(domain_of(str(row.get("dataset", "")), str(row["category"])) for row in rows)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnreadableFile(f"{path}: not a list of requests with a category: {error!r}") from error
