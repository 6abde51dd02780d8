"""Latencies as an HDR histogram: three significant digits from a microsecond to an hour, mergeable."""

import binascii
import math
import struct
import zlib
from base64 import b64decode
from typing import Self

import numpy as np
from hdrh.codec import HdrCookieException, HdrHistogramSettingsException, HdrLengthException
from hdrh.histogram import HdrHistogram

from eldr_runtime.array_types import Ints
from eldr_runtime.errors import InvalidMessage, InvalidValue

LOWEST_US = 1
HIGHEST_US = 3_600_000_000
SIGNIFICANT_DIGITS = 3
MAX_TEXT_CHARACTERS = 256 * 1024
# 23 buckets of 1,024 counters of at most 9 bytes each, with the header.
_MAX_INFLATED_BYTES = 256 * 1024
# Cookie, payload length, offset, digits, lowest, highest; it follows 8 bytes of outer cookie and length.
_HEADER = struct.Struct(">IIIIQQ")
_OUTER_BYTES = 8


class LatencyHistogram:
    """Counts of latencies; merging two is the same as recording all in one.

    Examples
    --------
    >>> histogram = LatencyHistogram()
    >>> for latency_ms in (10.0, 20.0, 30.0):
    ...     histogram.record_ms(latency_ms)
    >>> round(histogram.quantile_ms(0.5), 1)
    20.0
    """

    def __init__(self) -> None:
        self._histogram = HdrHistogram(LOWEST_US, HIGHEST_US, SIGNIFICANT_DIGITS)

    @property
    def count(self) -> int:
        """Latencies recorded."""
        return int(self._histogram.total_count)

    def record_ms(self, latency_ms: float) -> None:
        """Record one latency; below a microsecond counts as one, above an hour as an hour."""
        if not (math.isfinite(latency_ms) and latency_ms >= 0):
            raise InvalidValue(field="latency_ms", value=latency_ms, limit="finite, 0 or more")
        self._histogram.record_value(min(max(round(latency_ms * 1000), LOWEST_US), HIGHEST_US))

    def merge(self, other: "LatencyHistogram") -> None:
        """Add all that another histogram has recorded."""
        self._histogram.add(other._histogram)

    def quantile_ms(self, quantile: float) -> float | None:
        """Return the latency that the given share of the records does not exceed; None without records.

        The nearest rank is taken, and of its bucket the upper end, at most 0.1 % above the recorded value.
        """
        if not 0 <= quantile <= 1:
            raise InvalidValue(field="quantile", value=quantile, limit="from 0 to 1")
        if not self.count:
            return None
        rank = max(1, math.ceil(quantile * self.count - 1e-9))
        index = int(np.searchsorted(np.cumsum(self._counts()), rank))
        value_us = self._histogram.get_value_from_index(index)
        return float(self._histogram.get_highest_equivalent_value(value_us)) / 1000

    def mean_ms(self) -> float | None:
        """Return the mean latency, each record taken as the middle of its bucket; None without records."""
        if not self.count:
            return None
        counts = self._counts()
        recorded = counts.nonzero()[0]
        middles_us = [
            self._histogram.get_value_from_index(index)
            + self._histogram.get_highest_equivalent_value(self._histogram.get_value_from_index(index))
            for index in recorded.tolist()
        ]
        return float(np.average(middles_us, weights=counts[recorded])) / 2000

    def to_base64(self) -> str:
        """Write in the compressed HDR V2 format, which other HDR implementations read."""
        text: bytes = self._histogram.encode()
        return text.decode("ascii")

    @classmethod
    def from_base64(cls, text: str) -> Self:
        """Read what `to_base64` wrote; limits are checked before anything is inflated or counted.

        Raises
        ------
        InvalidMessage
            For text that is corrupted, too large, or of a histogram with another range.
        """
        _check_header(text)
        decoded = cls()
        try:
            decoded._histogram.decode_and_add(text)
        except (
            HdrCookieException,
            HdrLengthException,
            HdrHistogramSettingsException,
            IndexError,
            MemoryError,
            OverflowError,
            TypeError,
            ValueError,
            zlib.error,
        ) as error:
            raise _refused(text, "a histogram in the compressed HDR format") from error
        return decoded

    def _counts(self) -> Ints:
        return np.frombuffer(self._histogram.counts, dtype=np.int64)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LatencyHistogram):
            return NotImplemented
        return bool(np.array_equal(self._counts(), other._counts()))

    __hash__ = None  # type: ignore[assignment]


def _check_header(text: str) -> None:
    """Refuse what does not announce our range and digits, or inflates past what those can need."""
    if len(text) > MAX_TEXT_CHARACTERS:
        raise _refused(text, f"at most {MAX_TEXT_CHARACTERS} characters")
    try:
        raw = b64decode(text, validate=True)
        inflated = zlib.decompressobj().decompress(raw[_OUTER_BYTES:], _MAX_INFLATED_BYTES + 1)
        _, _, offset, digits, lowest, highest = _HEADER.unpack_from(inflated)
    except (binascii.Error, ValueError, struct.error, zlib.error) as error:
        raise _refused(text, "a histogram in the compressed HDR format, as base64") from error
    if len(inflated) > _MAX_INFLATED_BYTES:
        raise _refused(text, f"at most {_MAX_INFLATED_BYTES} bytes when inflated")
    if (offset, digits, lowest, highest) != (0, SIGNIFICANT_DIGITS, LOWEST_US, HIGHEST_US):
        limit = f"a histogram from {LOWEST_US} to {HIGHEST_US} us with {SIGNIFICANT_DIGITS} digits"
        raise _refused(text, limit)


def _refused(text: str, limit: str) -> InvalidMessage:
    return InvalidMessage(field="histogram", value=text[:60], limit=limit)
