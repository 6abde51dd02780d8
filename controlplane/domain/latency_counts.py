"""Latency histograms as sparse counts, which add up at a fiftieth of the cost of opening dense ones.

The text form is that of `eldr_runtime.latency_histogram`: HDR's compressed V2 format, a microsecond to an
hour with three digits. Rolling up a window merges dozens of histograms of a few dozen values each.
"""

import math
import struct
import zlib
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from eldr_runtime.errors import InvalidMessage
from eldr_runtime.latency_histogram import (
    HIGHEST_US,
    LOWEST_US,
    MAX_TEXT_CHARACTERS,
    SIGNIFICANT_DIGITS,
)

OUTER = struct.Struct(">II")  # cookie, length of what follows
INNER = struct.Struct(">IIIIQQd")  # cookie, payload length, offset, digits, lowest, highest, conversion ratio
OUTER_COOKIE = 0x1C849314
INNER_COOKIE = 0x1C849313
MAX_INFLATED_BYTES = 256 * 1024
# Three digits need 2,048 counters below the first doubling and 1,024 for each further one.
HALF_BITS = 10
HALF = 1 << HALF_BITS
N_COUNTERS = (HIGHEST_US.bit_length() - HALF_BITS + 1) * HALF


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyCounts:
    """How many latencies fell in each HDR bucket that has any.

    Examples
    --------
    >>> one = LatencyCounts(by_index={1000: 2})
    >>> add_counts([one, one]).count
    4
    >>> one.quantile_ms(0.5)
    1.0
    """

    by_index: Mapping[int, int] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Latencies recorded."""
        return sum(self.by_index.values())

    def quantile_ms(self, quantile: float) -> float | None:
        """Return the upper end of the bucket that the given share does not exceed; None without records."""
        count = self.count
        if not count:
            return None
        rank = max(1, math.ceil(quantile * count - 1e-9))
        seen = 0
        for index in sorted(self.by_index):
            seen += self.by_index[index]
            if seen >= rank:
                return _highest_us(index) / 1000
        raise AssertionError("the ranks end at the count")

    def to_base64(self) -> str:
        """Write in the compressed HDR V2 format."""
        payload = bytearray()
        position = 0
        for index in sorted(self.by_index):
            if index > position:
                _write_varint(payload, position - index)  # a negative number is a run of zeros
            _write_varint(payload, self.by_index[index])
            position = index + 1
        inner = INNER.pack(
            INNER_COOKIE, len(payload), 0, SIGNIFICANT_DIGITS, LOWEST_US, HIGHEST_US, 1.0
        ) + bytes(payload)
        packed = zlib.compress(inner, 1)
        return b64encode(OUTER.pack(OUTER_COOKIE, len(packed)) + packed).decode("ascii")

    @classmethod
    def from_base64(cls, text: str) -> "LatencyCounts":
        """Read what a router wrote; limits are checked before anything is counted."""
        return cls(by_index=_read_counts(_open(text), text))


def add_counts(all_counts: Iterable[LatencyCounts]) -> LatencyCounts:
    """Add up histograms: the same as recording everything in one."""
    total: dict[int, int] = {}
    for counts in all_counts:
        for index, n in counts.by_index.items():
            total[index] = total.get(index, 0) + n
    return LatencyCounts(by_index=total)


def _open(text: str) -> bytes:
    """Return the payload of a histogram of our range and digits."""
    if len(text) > MAX_TEXT_CHARACTERS:
        raise _refused(text, f"at most {MAX_TEXT_CHARACTERS} characters")
    try:
        raw = b64decode(text, validate=True)
        outer_cookie, _ = OUTER.unpack_from(raw)
        inflated = zlib.decompressobj().decompress(raw[OUTER.size :], MAX_INFLATED_BYTES + 1)
        cookie, n_bytes, offset, digits, lowest, highest, _ = INNER.unpack_from(inflated)
    except (Base64Error, ValueError, struct.error, zlib.error) as error:
        raise _refused(text, "a histogram in the compressed HDR format, as base64") from error
    payload = inflated[INNER.size :]
    if len(inflated) > MAX_INFLATED_BYTES or n_bytes != len(payload):
        raise _refused(text, "as long as its header says")
    if (outer_cookie, cookie) != (OUTER_COOKIE, INNER_COOKIE):
        raise _refused(text, "a histogram in the compressed HDR V2 format")
    if (offset, digits, lowest, highest) != (0, SIGNIFICANT_DIGITS, LOWEST_US, HIGHEST_US):
        raise _refused(text, f"{SIGNIFICANT_DIGITS} digits from {LOWEST_US} to {HIGHEST_US} microseconds")
    return payload


def _read_counts(payload: bytes, text: str) -> dict[int, int]:
    """Read zigzag LEB128 numbers: a count, or below 0 a run of so many zeros."""
    counts: dict[int, int] = {}
    index = shift = value = 0
    for byte in payload:
        if shift == 56:  # the ninth byte has all its eight bits
            value |= byte << shift
        else:
            value |= (byte & 0x7F) << shift
            if byte & 0x80:
                shift += 7
                continue
        number = (value >> 1) ^ -(value & 1)
        shift = value = 0
        if number < 0:
            index -= number
        elif number > 0:
            counts[index] = number
            index += 1
        else:
            index += 1
        if index > N_COUNTERS:
            raise _refused(text, f"at most {N_COUNTERS} counters")
    if shift:
        raise _refused(text, "whole numbers")
    return counts


def _write_varint(payload: bytearray, number: int) -> None:
    value = (number << 1) ^ (number >> 63)
    for _ in range(8):
        if value < 0x80:
            payload.append(value)
            return
        payload.append((value & 0x7F) | 0x80)
        value >>= 7
    payload.append(value)


def _highest_us(index: int) -> int:
    """Highest latency that is counted at an index, in microseconds."""
    bucket = (index >> HALF_BITS) - 1
    if bucket < 0:
        return index
    return (((index & (HALF - 1)) + HALF + 1) << bucket) - 1


def _refused(text: str, limit: str) -> InvalidMessage:
    return InvalidMessage(field="histogram", value=f"text of {len(text)} characters", limit=limit)
