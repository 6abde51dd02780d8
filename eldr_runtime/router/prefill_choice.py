"""Which prefill worker gets a prompt: the one that had its beginning before, unless it has too much to do.

Our own ring instead of the package `uhashring`: a snapshot of the configuration needs an immutable ring over
bytes and a bound on load, neither of which it has, and what is left of it is a sorted list and a bisection.
"""

import hashlib
import json
import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from eldr_runtime.worker_load import PoolView

PREFIX_BYTES = 1024
VIRTUAL_NODES = 160
LOAD_BOUND = 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillRing:
    """A consistent-hash ring: a worker that comes or goes moves the prompts of its own share alone.

    Examples
    --------
    >>> ring = PrefillRing(worker_ids=("a", "b"))
    >>> ring.home(b"once upon a time") in ("a", "b")
    True
    """

    worker_ids: tuple[str, ...]
    _points: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _owners: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        placed = sorted(
            (_point(f"{worker_id}#{node}".encode()), worker_id)
            for worker_id in set(self.worker_ids)
            for node in range(VIRTUAL_NODES)
        )
        object.__setattr__(self, "_points", tuple(point for point, _ in placed))
        object.__setattr__(self, "_owners", tuple(owner for _, owner in placed))

    def home(self, prefix: bytes, among: Iterable[str] | None = None) -> str | None:
        """Return the first worker after the prefix on the ring that is `among` the candidates."""
        allowed = set(self.worker_ids if among is None else among)
        start = bisect_right(self._points, _point(prefix))
        n_points = len(self._points)
        for step in range(n_points):
            owner = self._owners[(start + step) % n_points]
            if owner in allowed:
                return owner
        return None


def choose_prefill(ring: PrefillRing, prefix: bytes, pool: PoolView) -> str:
    """Return the home of the prefix while its load is bounded, else the least loaded candidate.

    The bound is that of consistent hashing with bounded loads (Mirrokni, Thorup, Zadimoghaddam 2016): no
    worker takes more than 1.25 times the mean load, this request counted, rounded up.
    """
    in_flight = dict(zip(pool.worker_ids, pool.in_flight.tolist(), strict=True))
    home = ring.home(prefix, pool.worker_ids)
    bound = math.ceil(LOAD_BOUND * (sum(in_flight.values()) + 1) / len(in_flight))
    if home is not None and in_flight[home] + 1 <= bound:
        return home
    return min(in_flight, key=lambda worker_id: (in_flight[worker_id], worker_id != home, worker_id))


def prompt_prefix(body: Mapping[str, object]) -> bytes:
    """Return the first 1,024 bytes of a prompt: text, token ids, or roles and contents of a chat."""
    prompt = body.get("prompt")
    if isinstance(prompt, str):
        return _utf8(prompt[:PREFIX_BYTES])[:PREFIX_BYTES]
    pieces = _token_pieces(prompt) if isinstance(prompt, list) else _chat_pieces(body.get("messages"))
    taken = bytearray()
    for piece in pieces:
        taken += piece
        if len(taken) >= PREFIX_BYTES:
            break
    return bytes(taken[:PREFIX_BYTES])


def _token_pieces(tokens: Sequence[object]) -> Iterator[bytes]:
    for token in tokens:
        yield f"{token},".encode()


def _chat_pieces(messages: object) -> Iterator[bytes]:
    for message in messages if isinstance(messages, list) else []:
        if not isinstance(message, dict):
            continue
        content = message.get("content")
        text = content if isinstance(content, str) else json.dumps(content)
        yield _utf8(f"{message.get('role')}\n{text[:PREFIX_BYTES]}\n")


def _point(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big")


def _utf8(text: str) -> bytes:
    """Encode text; JSON may carry half a surrogate pair, which UTF-8 proper refuses."""
    return text.encode(errors="surrogatepass")
