"""Decode profiles of finished requests, pushed to the routers in batches, best effort."""

import asyncio
import hashlib
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import aiohttp

from eldr_runtime.count_codec import ExpertCounts
from eldr_runtime.decode_profile import (
    MOST_TO_PUSH,
    PUSH_TIMEOUT_SECONDS,
    PUSHED_AT_ONCE,
    PUSHED_PER_SECOND,
    DecodeProfile,
    DecodeProfileBatch,
    EncodedCounts,
)
from eldr_runtime.json_values import to_json_value
from eldr_runtime.sampling import is_sampled
from eldr_runtime.simulated_fleet.profile_pool import ProfilePool

BATCH_SECONDS = 0.2
# Routers wait five seconds for a profile: worked off in order after a burst, all would come too late.
KEEP_SECONDS = 3.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRequest:
    """What the profile of a finished request is drawn from."""

    worker_id: str
    request_id: str
    profile: int
    n_steps: int
    ended_at_seconds: float


def draw_decode_counts(pool: ProfilePool, profile: int, n_steps: int, *, seed_text: str) -> EncodedCounts:
    """Draw the experts that the decode steps of a request use; the same text draws the same."""
    seed = int.from_bytes(hashlib.blake2b(seed_text.encode(), digest_size=8).digest())
    counts = ExpertCounts(
        shape=pool.shape,
        counts=pool.decode_counts(profile, n_steps, seed),
        tokens=n_steps,
        covered=n_steps,
    )
    return EncodedCounts.from_counts(counts)


class DecodeProfilePush:
    """Takes finished requests, pushes the profiles of the sampled ones while :meth:`run` runs."""

    def __init__(self, pool: ProfilePool, clock: Callable[[], float] = time.monotonic) -> None:
        self._pool = pool
        self._clock = clock
        self._urls: tuple[str, ...] = ()
        self._share = 0.0
        self._queue: deque[FinishedRequest] = deque()
        self.n_pushed = 0
        self.n_dropped = 0

    def aim(self, urls: Sequence[str], share: float) -> None:
        """Push to these addresses from now on, of this share of the requests."""
        self._urls = tuple(urls)
        self._share = share

    def offer(self, worker_id: str, request_id: str, profile: int, n_steps: int) -> None:
        """Take a finished request."""
        if not self._urls or not is_sampled(request_id, self._share):
            return
        if len(self._queue) >= MOST_TO_PUSH:
            self.n_dropped += 1
            return
        finished = FinishedRequest(
            worker_id=worker_id,
            request_id=request_id,
            profile=profile,
            n_steps=n_steps,
            ended_at_seconds=self._clock(),
        )
        self._queue.append(finished)

    def next_batch(self, n_most: int) -> list[FinishedRequest]:
        """Take what goes out next, oldest first; what nobody waits for any more is dropped."""
        since_seconds = self._clock() - KEEP_SECONDS
        while self._queue and self._queue[0].ended_at_seconds < since_seconds:
            self._queue.popleft()
            self.n_dropped += 1
        return [self._queue.popleft() for _ in range(min(n_most, len(self._queue)))]

    async def run(self) -> None:
        """Push batches until cancelled."""
        timeout = aiohttp.ClientTimeout(total=PUSH_TIMEOUT_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            allowance = 0.0
            counted_at_seconds = self._clock()
            while True:
                await asyncio.sleep(BATCH_SECONDS)
                now_seconds = self._clock()
                allowance = min(
                    PUSHED_AT_ONCE, allowance + PUSHED_PER_SECOND * (now_seconds - counted_at_seconds)
                )
                counted_at_seconds = now_seconds
                batch = self.next_batch(int(allowance))
                allowance -= len(batch)
                if batch:
                    await self._push(session, batch)

    async def _push(self, session: aiohttp.ClientSession, batch: Sequence[FinishedRequest]) -> None:
        profiles = []
        for request in batch:
            profiles.append(self._draw(request))
            await asyncio.sleep(0)  # a millisecond each: let the steps that are due go first
        body = to_json_value(DecodeProfileBatch(profiles=tuple(profiles)))
        arrived = await asyncio.gather(*(self._post(session, url, body) for url in self._urls))
        if any(arrived):
            self.n_pushed += len(batch)
        else:
            self.n_dropped += len(batch)

    def _draw(self, request: FinishedRequest) -> DecodeProfile:
        return DecodeProfile(
            request_id=request.request_id,
            worker_id=request.worker_id,
            steps=request.n_steps,
            counts=draw_decode_counts(
                self._pool, request.profile, request.n_steps, seed_text=request.request_id
            ),
        )

    async def _post(self, session: aiohttp.ClientSession, url: str, body: object) -> bool:
        try:
            async with session.post(url, json=body) as response:
                if response.status < 300:
                    return True
                logger.warning("decode profiles: %s answered %d", url, response.status)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            logger.warning(
                "decode profiles: %s cannot be reached: %s", url, str(error) or type(error).__name__
            )
        return False
