"""Trace packs: expert traces on disk, as safetensors."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from eldr_runtime.array_types import Counts, Ints
from eldr_runtime.errors import InvalidTrace, InvalidValue, UnreadableFile
from eldr_runtime.expert_trace import UNKNOWN_UINT8, UNKNOWN_UINT16, ExpertTrace, count_topk
from eldr_runtime.model_shape import ModelShape

FORMAT_VERSION = 1
# All metadata is one entry: safetensors keeps its entries in hash order, which changes from run to run, and
# equal traces must give equal files.
METADATA_KEY = "eldr_trace"
_DTYPES: dict[str, tuple[str, ...]] = {
    "prefill_counts": ("U32",),
    "prompt_tokens": ("I64",),
    "covered_tokens": ("I64",),
    "decode_counts": ("U32",),
    "decode_steps": ("I64",),
    "decode_topk": ("U8", "U16"),
    "decode_offsets": ("I64",),
    "gate_prob": ("F32",),
    "gate_logit": ("F32",),
    "arrival_seconds": ("F64",),
}

_Scalar = TypeVar("_Scalar", bound=np.generic)


def save_trace(trace: ExpertTrace, path: Path) -> None:
    """Write a trace pack; equal traces give identical bytes.

    The file appears whole or not at all: it is written beside its place and renamed.
    """
    arrays = {
        "prefill_counts": trace.prefill_counts,
        "prompt_tokens": trace.prompt_tokens,
        "covered_tokens": trace.covered_tokens,
        "decode_counts": trace.decode_counts,
        "decode_steps": trace.decode_steps,
        "gate_prob": trace.gate_prob,
        "gate_logit": trace.gate_logit,
        "arrival_seconds": trace.arrival_seconds,
    }
    tensors = {name: np.ascontiguousarray(array) for name, array in arrays.items() if array is not None}
    temporary = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    try:
        temporary.touch()
        mode = temporary.stat().st_mode
        save_file(tensors, temporary, metadata={METADATA_KEY: _header(trace)})
        temporary.chmod(mode)  # save_file leaves its files readable by the owner only
        _flush_to_disk(temporary)
        temporary.replace(path)
    except SafetensorError as error:
        raise OSError(f"{path} cannot be written: {error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def load_trace(path: Path) -> ExpertTrace:
    """Read a trace pack, and check it.

    A pack may hold `decode_topk` and `decode_offsets` instead of decode counts: they are counted here, and
    a token with an unknown id is no decode step. Without `covered_tokens`, every prompt token is covered.
    Tensors of other names are ignored.

    Raises
    ------
    UnreadableFile
        Missing, truncated, not safetensors, or not a trace pack.
    InvalidTrace
        A trace that contradicts itself.
    """
    try:
        with safe_open(path, framework="numpy") as pack:
            metadata = pack.metadata() or {}
            names = [name for name in pack.keys() if name in _DTYPES]  # noqa: SIM118 - not a mapping
            for name in names:
                _check_dtype(name, pack.get_slice(name).get_dtype())
            tensors = {name: pack.get_tensor(name) for name in names}
    except (SafetensorError, OSError) as error:
        raise UnreadableFile(f"{path}: no readable trace pack: {error}") from error
    if METADATA_KEY not in metadata:
        raise UnreadableFile(
            f"{path}: safetensors, but not a trace pack: no {METADATA_KEY!r} in its metadata"
        )
    try:
        header = json.loads(metadata[METADATA_KEY])
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(f"{path}: its {METADATA_KEY!r} is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise UnreadableFile(f"{path}: its {METADATA_KEY!r} is not a JSON object")
    return _trace(header, tensors)


def _trace(header: Mapping[str, object], tensors: Mapping[str, NDArray[np.generic]]) -> ExpertTrace:
    version = _integer(header, "format")
    if version != FORMAT_VERSION:
        raise InvalidTrace(field="format", value=version, limit=str(FORMAT_VERSION))
    shape = _shape(header)
    prompt_tokens = _required(tensors, "prompt_tokens", np.int64)
    covered_tokens = _optional(tensors, "covered_tokens", np.int64)
    prefill_counts = _required(tensors, "prefill_counts", np.uint32)
    decode_counts, decode_steps = _decode(tensors, shape, prefill_counts.shape)
    return ExpertTrace(
        shape=shape,
        prefill_counts=prefill_counts,
        prompt_tokens=prompt_tokens,
        covered_tokens=prompt_tokens if covered_tokens is None else covered_tokens,
        decode_counts=decode_counts,
        decode_steps=decode_steps,
        gate_prob=_optional(tensors, "gate_prob", np.float32),
        gate_logit=_optional(tensors, "gate_logit", np.float32),
        labels=_texts(header, "labels"),
        sessions=_texts(header, "sessions"),
        arrival_seconds=_optional(tensors, "arrival_seconds", np.float64),
        source=_text(header, "source") or "",
        licence=_text(header, "licence") or "",
        signature_note=_text(header, "signature_note"),
    )


def count_by_request(
    topk: NDArray[np.uint8] | NDArray[np.uint16], offsets: Ints, n_experts: int
) -> tuple[Counts, Ints]:
    """Count expert ids of many requests laid end to end; a token with an unknown id is left out.

    Parameters
    ----------
    topk
        uint8 or uint16 `(n_tokens, n_layers, top_k)`.
    offsets
        int64 `(n_requests + 1,)`: tokens `offsets[i]:offsets[i + 1]` belong to request `i`.
    n_experts
        Experts a layer.

    Returns
    -------
    uint32 `(n_requests, n_layers, n_experts)` counts and int64 `(n_requests,)` tokens counted.
    """
    if topk.ndim != 3:
        raise InvalidTrace(field="decode_topk shape", value=topk.shape, limit="(n_tokens, n_layers, top_k)")
    _check_offsets(offsets, len(topk))
    unknown = UNKNOWN_UINT8 if topk.dtype == np.uint8 else UNKNOWN_UINT16
    n_requests = len(offsets) - 1
    counts = np.empty((n_requests, topk.shape[1], n_experts), dtype=np.uint32)
    n_tokens = np.empty(n_requests, dtype=np.int64)
    for request in range(n_requests):
        tokens = topk[offsets[request] : offsets[request + 1]]
        is_known = (tokens != unknown).all(axis=(1, 2))
        counts[request] = count_topk(tokens[is_known], n_experts)
        n_tokens[request] = np.count_nonzero(is_known)
    return counts, n_tokens


def _decode(
    tensors: Mapping[str, NDArray[np.generic]], shape: ModelShape, prefill_shape: tuple[int, ...]
) -> tuple[Counts | None, Ints | None]:
    if "decode_topk" not in tensors:
        return _optional(tensors, "decode_counts", np.uint32), _optional(tensors, "decode_steps", np.int64)
    if "decode_counts" in tensors:
        raise InvalidTrace(field="decode_counts", value="present", limit="absent beside decode_topk")
    offsets = _required(tensors, "decode_offsets", np.int64)
    _check_topk_shapes(tensors["decode_topk"].shape, offsets.shape, prefill_shape, shape)
    if tensors["decode_topk"].dtype == np.uint8:
        return count_by_request(_required(tensors, "decode_topk", np.uint8), offsets, shape.n_experts)
    return count_by_request(_required(tensors, "decode_topk", np.uint16), offsets, shape.n_experts)


def _check_topk_shapes(
    topk: tuple[int, ...], offsets: tuple[int, ...], prefill: tuple[int, ...], shape: ModelShape
) -> None:
    """Refuse before counting: the counts then take as much memory as those of the prompts, and no more."""
    if len(topk) != 3 or topk[1:] != (shape.n_layers, shape.top_k):
        limit = f"(n_tokens, {shape.n_layers}, {shape.top_k})"
        raise InvalidTrace(field="decode_topk shape", value=topk, limit=limit)
    if prefill[1:] != shape.counts_shape:
        limit = f"(n_requests, {shape.n_layers}, {shape.n_experts})"
        raise InvalidTrace(field="prefill_counts shape", value=prefill, limit=limit)
    if offsets != (prefill[0] + 1,):
        limit = f"({prefill[0] + 1},): requests and one"
        raise InvalidTrace(field="decode_offsets shape", value=offsets, limit=limit)


def _check_offsets(offsets: Ints, n_tokens: int) -> None:
    if offsets.ndim != 1 or len(offsets) < 2:
        raise InvalidTrace(field="decode_offsets shape", value=offsets.shape, limit="(n_requests + 1,)")
    if offsets[0] != 0:
        raise InvalidTrace(field="decode_offsets[0]", value=int(offsets[0]), limit="0")
    if offsets[-1] != n_tokens:
        limit = f"{n_tokens}, the tokens in decode_topk"
        raise InvalidTrace(field="decode_offsets[-1]", value=int(offsets[-1]), limit=limit)
    if (np.diff(offsets) < 0).any():
        at = int(np.argmax(np.diff(offsets) < 0)) + 1
        limit = f"at least {offsets[at - 1]}, the one before"
        raise InvalidTrace(field=f"decode_offsets[{at}]", value=int(offsets[at]), limit=limit)


def _header(trace: ExpertTrace) -> str:
    header = {
        "format": FORMAT_VERSION,
        "model": trace.shape.model,
        "n_layers": trace.shape.n_layers,
        "n_experts": trace.shape.n_experts,
        "top_k": trace.shape.top_k,
        "labels": trace.labels,
        "sessions": trace.sessions,
        "source": trace.source,
        "licence": trace.licence,
        "signature_note": trace.signature_note,
    }
    return json.dumps(header, sort_keys=True)


def _shape(header: Mapping[str, object]) -> ModelShape:
    try:
        return ModelShape(
            model=_text(header, "model") or "",
            n_layers=_integer(header, "n_layers"),
            n_experts=_integer(header, "n_experts"),
            top_k=_integer(header, "top_k"),
        )
    except InvalidValue as error:
        raise InvalidTrace(field=error.field, value=error.value, limit=error.limit) from error


def _text(header: Mapping[str, object], field: str) -> str | None:
    value = header.get(field)
    if value is None or (isinstance(value, str) and _is_unicode(value)):
        return value
    raise InvalidTrace(field=field, value=value, limit="text")


def _integer(header: Mapping[str, object], field: str) -> int:
    value = header.get(field)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidTrace(field=field, value=value, limit="an integer")
    return value


def _texts(header: Mapping[str, object], field: str) -> tuple[str, ...] | None:
    value = header.get(field)
    if value is None:
        return None
    if not isinstance(value, list):
        raise InvalidTrace(field=field, value=type(value).__name__, limit="a list of texts")
    for at, entry in enumerate(value):
        if not isinstance(entry, str) or not _is_unicode(entry):
            raise InvalidTrace(field=f"{field}[{at}]", value=entry, limit="text")
    return tuple(value)


def _is_unicode(text: str) -> bool:
    """Whether the text can be written out: JSON may hold half a surrogate pair, UTF-8 may not."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _check_dtype(field: str, found: str) -> None:
    if found not in _DTYPES[field]:
        raise InvalidTrace(field=f"{field} dtype", value=found, limit=" or ".join(_DTYPES[field]))


def _optional(
    tensors: Mapping[str, NDArray[np.generic]], field: str, dtype: type[_Scalar]
) -> NDArray[_Scalar] | None:
    tensor = tensors.get(field)
    return None if tensor is None else tensor.astype(dtype, copy=False)


def _required(
    tensors: Mapping[str, NDArray[np.generic]], field: str, dtype: type[_Scalar]
) -> NDArray[_Scalar]:
    tensor = _optional(tensors, field, dtype)
    if tensor is None:
        raise InvalidTrace(field=field, value=None, limit="present in a trace pack")
    return tensor


def _flush_to_disk(path: Path) -> None:
    with path.open("rb") as handle:
        os.fsync(handle.fileno())
