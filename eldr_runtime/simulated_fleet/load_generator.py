"""Open-loop load: requests come at Poisson times whether or not earlier ones have ended."""

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import aiohttp
import numpy as np

from eldr_runtime.errors import InvalidConfig
from eldr_runtime.simulated_fleet.answer_reader import AnswerReader
from eldr_runtime.simulated_fleet.load_statistics import LoadStatistics, LoadStatus, MixStatus
from eldr_runtime.simulated_fleet.prompt_set import PromptSet
from eldr_runtime.simulated_fleet.traffic_mix import FEWEST_PROMPT_TOKENS, TrafficMix, prompt_text

CONNECT_SECONDS = 10.0
BETWEEN_CHUNKS_SECONDS = 60.0
TEMPERATURE = 0.8  # greedy decoding loops, which makes requests of a topic look more alike than they are
KEEP_ALIVE_SECONDS = 2.0  # below any server's, so that no request meets a connection that is being closed


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSettings:
    """What a load generator sends, and where to; `run_id` makes its requests unlike those of other runs.

    With `prompts` it sends their texts, and asks for them to be sampled; else words that name a profile.
    """

    router_url: str
    model: str
    rate_per_second: float
    prompt_tokens: int
    output_tokens: int
    duration_seconds: float | None
    drain_seconds: float
    max_in_flight: int
    seed: int
    prompts: PromptSet | None = None
    run_id: str = field(default_factory=lambda: secrets.token_hex(3))

    def __post_init__(self) -> None:
        if not 0 < self.rate_per_second <= 100_000:
            raise InvalidConfig(field="rate", value=self.rate_per_second, limit="above 0 and at most 100000")
        if self.prompt_tokens < FEWEST_PROMPT_TOKENS:
            limit = f"at least {FEWEST_PROMPT_TOKENS}: the words that name the request and its profile"
            raise InvalidConfig(field="prompt_tokens", value=self.prompt_tokens, limit=limit)
        if self.output_tokens < 1:
            raise InvalidConfig(field="output_tokens", value=self.output_tokens, limit="at least 1")


class LoadGenerator:
    """Sends requests until its time is over or it is stopped, then lets those in flight finish."""

    def __init__(
        self, settings: LoadSettings, mix: TrafficMix, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._mix = mix
        self._clock = clock
        self._rng = np.random.default_rng([settings.seed, 11])
        self._stopped = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.statistics = LoadStatistics(clock)

    def stop(self) -> None:
        """Send no more requests; those in flight may finish."""
        self._stopped.set()

    def set_unseen_share(self, share: float) -> None:
        """Change the share of the unseen topic from the next request on."""
        self._mix.set_unseen_share(share)

    def status(self) -> LoadStatus:
        """Return the state of the run now."""
        mix = MixStatus(
            unseen_topic=self._mix.unseen_topic,
            unseen_topic_share=self._mix.unseen_topic_share,
            topic_shares=dict(self._mix.topic_shares),
        )
        return self.statistics.status(mix=mix, rate_per_second=self._settings.rate_per_second)

    async def run(self) -> None:
        """Send the load; return when every request has ended or the drain time is over."""
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_SECONDS)
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_SECONDS, sock_read=BETWEEN_CHUNKS_SECONDS
        )
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            await self._send_all(session)
            await self._drain()

    async def _send_all(self, session: aiohttp.ClientSession) -> None:
        started_at_seconds = self._clock()
        duration_seconds = self._settings.duration_seconds
        at_seconds = started_at_seconds
        serial = 0
        while not self._stopped.is_set():
            at_seconds += float(self._rng.exponential(1.0 / self._settings.rate_per_second))
            if duration_seconds is not None and at_seconds > started_at_seconds + duration_seconds:
                return
            if await self._is_stopped_before(at_seconds):
                return
            serial += 1
            self._send(session, serial, at_seconds)

    def _send(self, session: aiohttp.ClientSession, serial: int, at_seconds: float) -> None:
        request_id = f"{self._settings.run_id}-{serial}"
        profile = self._mix.next_profile()
        in_flight = self.statistics.in_flight
        self.statistics.count_sent()
        if in_flight >= self._settings.max_in_flight:
            self.statistics.count_failed(request_id, f"not sent: {in_flight} requests are in flight")
            return
        task = asyncio.create_task(self._one(session, request_id, profile, at_seconds))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _is_stopped_before(self, at_seconds: float) -> bool:
        delay_seconds = at_seconds - self._clock()
        if delay_seconds <= 0:
            await asyncio.sleep(0)
            return self._stopped.is_set()
        try:
            async with asyncio.timeout(delay_seconds):
                await self._stopped.wait()
        except TimeoutError:
            return False
        return True

    async def _drain(self) -> None:
        tasks = set(self._tasks)
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=self._settings.drain_seconds)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    async def _one(
        self, session: aiohttp.ClientSession, request_id: str, profile: int, at_seconds: float
    ) -> None:
        try:
            failure = await self._stream(session, request_id, profile, at_seconds)
        except asyncio.CancelledError:
            self.statistics.count_failed(request_id, "unfinished: the drain time was over")
            raise
        except TimeoutError:
            failure = f"timeout: nothing for {BETWEEN_CHUNKS_SECONDS:.0f} s"
        except aiohttp.ClientPayloadError as error:
            failure = f"cut stream: {error}"
        except (aiohttp.ClientError, OSError) as error:
            failure = f"connection: {type(error).__name__} {error}"
        if failure is not None:
            self.statistics.count_failed(request_id, failure)

    async def _stream(
        self, session: aiohttp.ClientSession, request_id: str, profile: int, at_seconds: float
    ) -> str | None:
        """Send one request and count it if it ends as asked; else return the reason."""
        url = f"{self._settings.router_url}/v1/completions"
        body = self._body(profile, request_id)
        reader = AnswerReader()
        async with session.post(url, json=body, headers={"X-Request-Id": f"load-{request_id}"}) as response:
            if response.status != 200:
                return f"http {response.status}: {(await response.text())[:300]}"
            async for data in response.content.iter_any():
                reader.feed(data, self._clock())
        failure = reader.failure(self._settings.output_tokens)
        if failure is None:
            self._count(reader, at_seconds)
        return failure

    def _count(self, reader: AnswerReader, at_seconds: float) -> None:
        first, last = reader.first_content_seconds, reader.last_content_seconds
        if first is None or last is None:
            return
        n_gaps = self._settings.output_tokens - 1
        self.statistics.count_finished(
            ttft_ms=(first - at_seconds) * 1000.0,
            tpot_ms=(last - first) * 1000.0 / n_gaps if n_gaps else None,
            output_tokens=self._settings.output_tokens,
        )

    def _body(self, profile: int, request_id: str) -> dict[str, object]:
        return {
            "model": self._settings.model,
            **self._prompt(profile, request_id),
            "max_tokens": self._settings.output_tokens,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }

    def _prompt(self, profile: int, request_id: str) -> dict[str, object]:
        prompts = self._settings.prompts
        if prompts is None:
            return {"prompt": prompt_text(profile, request_id, self._settings.prompt_tokens)}
        return {"prompt": prompts.texts[profile], "temperature": TEMPERATURE}
