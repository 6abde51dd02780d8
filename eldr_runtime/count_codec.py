"""Expert counts on the wire: from a prefill worker to the router, and in decode profiles."""

import binascii
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from eldr_runtime.array_types import Counts
from eldr_runtime.errors import InvalidMessage, InvalidTrace, InvalidValue
from eldr_runtime.expert_trace import check_counts
from eldr_runtime.model_shape import ModelShape

WIRE_VERSION = 1
MAX_ENCODED_BYTES = 1 << 20
MAX_TOKENS = 2**31 - 1
_DTYPES: dict[str, np.dtype[np.unsignedinteger]] = {"zlib+u16": np.dtype("<u2"), "zlib+u32": np.dtype("<u4")}
# A prefill worker pays this for every request: 1,000 tokens of 48 x 128 take 0.35 ms and 7.3 KB at level 1,
# 1.8 ms and 7.1 KB at level 9.
_COMPRESSION_LEVEL = 1


# Identity, not equality: comparing arrays with == has no truth value.
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExpertCounts:
    """Expert counts of one request.

    Attributes
    ----------
    shape
        The model the counts belong to.
    counts
        uint32 `(n_layers, n_experts)`; each layer sums to `top_k * covered`.
    tokens
        Tokens of the prompt, or decode steps.
    covered
        Tokens whose experts are known, at most `tokens`.
    cached
        Tokens served from the prefix cache, at most `tokens`.
    """

    shape: ModelShape
    counts: Counts
    tokens: int
    covered: int
    cached: int = 0

    def __post_init__(self) -> None:
        _check_range("tokens", self.tokens, 1, MAX_TOKENS)
        _check_range("covered", self.covered, 0, self.tokens)
        _check_range("cached", self.cached, 0, self.tokens)
        try:
            check_counts(self.counts, self.covered, self.shape, "counts")
        except InvalidTrace as error:
            raise InvalidMessage(field=error.field, value=error.value, limit=error.limit) from error


def encode_counts(counts: ExpertCounts) -> dict[str, str | int]:
    """Turn counts into a JSON object: zlib over 16-bit integers, or 32-bit where a count needs it.

    Raises
    ------
    InvalidMessage
        If the counts take more than 1 MiB as base64.
    """
    encoding = "zlib+u16" if counts.counts.max() <= np.iinfo(np.uint16).max else "zlib+u32"
    packed = zlib.compress(counts.counts.astype(_DTYPES[encoding]).tobytes(), _COMPRESSION_LEVEL)
    text = b64encode(packed).decode("ascii")
    _check_size(text)
    return {
        "v": WIRE_VERSION,
        "model": counts.shape.model,
        "layers": counts.shape.n_layers,
        "experts": counts.shape.n_experts,
        "top_k": counts.shape.top_k,
        "encoding": encoding,
        "counts": text,
        "tokens": int(counts.tokens),
        "covered": int(counts.covered),
        "cached": int(counts.cached),
    }


def decode_counts(message: Mapping[str, object]) -> ExpertCounts:
    """Read what `encode_counts` wrote; fields it does not know are ignored.

    No more memory is used than the announced layers and experts need, whatever the compressed text
    would inflate to.

    Raises
    ------
    InvalidMessage
        A missing field, a wrong type, a value outside its limit, or text that does not decode to exactly
        the announced counts.
    """
    version = _integer(message, "v")
    if version != WIRE_VERSION:
        raise InvalidMessage(field="v", value=version, limit=str(WIRE_VERSION))
    shape = _shape(message)
    encoding = _text(message, "encoding")
    dtype = _DTYPES.get(encoding)
    if dtype is None:
        raise InvalidMessage(field="encoding", value=encoding, limit=f"one of {', '.join(_DTYPES)}")
    n_bytes = shape.n_layers * shape.n_experts * dtype.itemsize
    raw = _inflate(_text(message, "counts"), n_bytes)
    return ExpertCounts(
        shape=shape,
        counts=np.frombuffer(raw, dtype=dtype).astype(np.uint32).reshape(shape.counts_shape),
        tokens=_integer(message, "tokens"),
        covered=_integer(message, "covered"),
        cached=_integer(message, "cached"),
    )


def _shape(message: Mapping[str, object]) -> ModelShape:
    try:
        return ModelShape(
            model=_text(message, "model"),
            n_layers=_integer(message, "layers"),
            n_experts=_integer(message, "experts"),
            top_k=_integer(message, "top_k"),
        )
    except InvalidMessage:
        raise
    except InvalidValue as error:
        raise InvalidMessage(field=error.field, value=error.value, limit=error.limit) from error


def _inflate(text: str, n_bytes: int) -> bytes:
    _check_size(text)
    try:
        packed = b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidMessage(field="counts", value=f"text of {len(text)}", limit="base64") from error
    inflater = zlib.decompressobj()
    try:
        raw = inflater.decompress(packed, n_bytes + 1)
    except zlib.error as error:
        raise InvalidMessage(field="counts", value=f"{len(packed)} bytes", limit="zlib data") from error
    if len(raw) != n_bytes:
        found = f"more than {n_bytes}" if len(raw) > n_bytes else len(raw)
        limit = f"{n_bytes}: layers * experts * bytes a count"
        raise InvalidMessage(field="inflated size of counts", value=found, limit=limit)
    if not inflater.eof or inflater.unused_data:
        raise InvalidMessage(field="counts", value=f"{len(packed)} bytes", limit="one whole zlib stream")
    return raw


def _check_size(text: str) -> None:
    if len(text) > MAX_ENCODED_BYTES:
        limit = f"at most {MAX_ENCODED_BYTES} bytes"
        raise InvalidMessage(field="encoded size of counts", value=len(text), limit=limit)


def _text(message: Mapping[str, object], field: str) -> str:
    value = message.get(field)
    if not isinstance(value, str):
        raise InvalidMessage(field=field, value=value, limit="text")
    return value


def _integer(message: Mapping[str, object], field: str) -> int:
    value = message.get(field)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidMessage(field=field, value=value, limit="an integer")
    return value


def _check_range(field: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise InvalidMessage(field=field, value=value, limit=f"an integer from {low} to {high}")
