"""Decode profiles of finished requests: whose are taken, and their way to the routers, best effort."""

import json
import logging
import queue
import re
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eldr_runtime.array_types import Counts, ExpertIds
from eldr_runtime.count_codec import ExpertCounts
from eldr_runtime.decode_profile import (
    MOST_TO_PUSH,
    PUSH_TIMEOUT_SECONDS,
    PUSHED_AT_ONCE,
    PUSHED_PER_SECOND,
    DecodeProfile,
    DecodeProfileBatch,
)
from eldr_runtime.errors import InvalidValue
from eldr_runtime.expert_trace import count_topk
from eldr_runtime.json_values import from_json_value, parse_json, to_json_value
from eldr_runtime.model_shape import ModelShape
from eldr_runtime.sampling import is_sampled

_ATTEMPT = re.compile(r"\A(?:chatcmpl-|cmpl-)?(?P<attempt>.*\.[0-9a-f]{32})(?![0-9a-f])")

logger = logging.getLogger(__name__)


def attempt_id_of(request_id: str) -> str:
    """Return the id under which the router knows a request, of which vLLM has made its own.

    Examples
    --------
    >>> attempt_id_of("cmpl-batch-7.0123456789abcdef0123456789abcdef-0-9f3c21aa")
    'batch-7.0123456789abcdef0123456789abcdef'
    >>> attempt_id_of("a-request-that-came-without-a-router")
    'a-request-that-came-without-a-router'
    """
    found = _ATTEMPT.match(request_id)
    return request_id if found is None else found["attempt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileTarget:
    """Where profiles go, and of which share of the requests; none without an address."""

    urls: tuple[str, ...] = ()
    share: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise InvalidValue(field="share", value=self.share, limit="from 0 to 1")

    def wants(self, request_id: str) -> bool:
        """Return whether a request's profile goes to the routers."""
        return bool(self.urls) and is_sampled(attempt_id_of(request_id), self.share)


class TargetFile:
    """The target as the launcher writes it into a file: it learns it when it registers the worker."""

    CHECK_SECONDS = 1.0

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, int] | None = None
        self._next_check = 0.0
        self._target = ProfileTarget()

    def current(self) -> ProfileTarget:
        """Return the target, read again at most once a second; a file that cannot be read changes nothing."""
        now = time.monotonic()
        if now >= self._next_check:
            self._next_check = now + self.CHECK_SECONDS
            self._read()
        return self._target

    def _read(self) -> None:
        try:
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_size)
            if stamp == self._stamp:
                return
            self._target = from_json_value(ProfileTarget, parse_json(self._path.read_text()))
            self._stamp = stamp
        except FileNotFoundError:
            return
        except (OSError, InvalidValue) as error:
            logger.warning("decode profiles: %s: %s", self._path, error)


class DecodeTally:
    """Counts of the decode steps of one request, from its first step on."""

    def __init__(self, shape: ModelShape) -> None:
        self._shape = shape
        self._counts: Counts = np.zeros(shape.counts_shape, dtype=np.uint32)
        self._n_covered = 0
        self.n_steps = 0

    def add(self, row: ExpertIds) -> None:
        """Add a step; `row` is uint8 or uint16 `(n_layers, top_k)`."""
        self.n_steps += 1
        if (row < self._shape.n_experts).all():
            self._counts += count_topk(row[None], self._shape.n_experts)
            self._n_covered += 1

    def total(self) -> ExpertCounts:
        """Return the counts; there must have been a step."""
        return ExpertCounts(
            shape=self._shape, counts=self._counts.copy(), tokens=self.n_steps, covered=self._n_covered
        )


class ProfilePush:
    """Sends profiles from a thread of its own; under pressure they are dropped and counted.

    Attributes
    ----------
    n_pushed, n_dropped
        Profiles that at least one router took, and those that none did.
    """

    def __init__(self) -> None:
        self._queue: queue.Queue[tuple[DecodeProfile, tuple[str, ...]] | None] = queue.Queue(MOST_TO_PUSH)
        self._thread = threading.Thread(target=self._run, name="eldr-decode-profiles", daemon=True)
        self._is_started = False
        self.n_pushed = 0
        self.n_dropped = 0

    def offer(self, profile: DecodeProfile, urls: tuple[str, ...]) -> None:
        """Take a profile; never waits."""
        if not self._is_started:
            self._is_started = True
            self._thread.start()
        try:
            self._queue.put_nowait((profile, urls))
        except queue.Full:
            self.n_dropped += 1

    def close(self) -> None:
        """Send what is waiting, and end the thread; gives up after two time-outs."""
        if self._is_started:
            try:
                self._queue.put(None, timeout=PUSH_TIMEOUT_SECONDS)
            except queue.Full:
                return
            self._thread.join(timeout=PUSH_TIMEOUT_SECONDS)

    def _run(self) -> None:
        is_open = True
        while is_open:
            batch = []
            item = self._queue.get()
            while item is not None:
                batch.append(item)
                if len(batch) >= PUSHED_AT_ONCE or self._queue.empty():
                    break
                item = self._queue.get()
            is_open = item is not None
            if batch:
                self._push([profile for profile, _ in batch], batch[-1][1])
                if is_open:
                    time.sleep(len(batch) / PUSHED_PER_SECOND)

    def _push(self, profiles: list[DecodeProfile], urls: tuple[str, ...]) -> None:
        batch = DecodeProfileBatch(profiles=tuple(profiles))
        data = json.dumps(to_json_value(batch), separators=(",", ":")).encode()
        n_taken = sum(_post(url, data) for url in urls)
        if n_taken:
            self.n_pushed += len(profiles)
        else:
            self.n_dropped += len(profiles)


def _post(url: str, data: bytes) -> bool:
    request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=PUSH_TIMEOUT_SECONDS) as response:
            return bool(response.status < 300)
    except (OSError, ValueError, urllib.error.URLError) as error:
        logger.warning("decode profiles: %s: %s", url, error)
        return False
