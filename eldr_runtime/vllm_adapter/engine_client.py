"""What the launcher asks its vLLM over HTTP."""

import aiohttp

from eldr_runtime.errors import InvalidMessage, UnsupportedEngine
from eldr_runtime.json_values import parse_json
from eldr_runtime.vllm_adapter.metrics_text import read_engine_metrics
from eldr_runtime.vllm_adapter.self_test import probe_request, why_probe_failed

TIMEOUT_SECONDS = 10.0
PROBE_TIMEOUT_SECONDS = 300.0  # the first request may compile kernels
NO_ANSWER = (aiohttp.ClientError, TimeoutError, OSError)


class EngineClient:
    """One vLLM server, reached from its own machine."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def is_healthy(self) -> bool:
        """Whether it answers `/health` with success."""
        try:
            async with self._session.get(f"{self._url}/health", timeout=_timeout(TIMEOUT_SECONDS)) as answer:
                return answer.status == 200
        except NO_ANSWER:
            return False

    async def version(self) -> str:
        """Return vLLM's own version."""
        async with self._session.get(f"{self._url}/version", timeout=_timeout(TIMEOUT_SECONDS)) as answer:
            document = parse_json(await answer.text())
        version = document.get("version") if isinstance(document, dict) else None
        if not isinstance(version, str):
            raise InvalidMessage(field="version", value=version, limit="the version of vLLM as text")
        return version

    async def n_in_flight(self) -> float | None:
        """Return its running and waiting requests; None if it does not say."""
        try:
            async with self._session.get(f"{self._url}/metrics", timeout=_timeout(TIMEOUT_SECONDS)) as answer:
                metrics = read_engine_metrics(await answer.text())
        except NO_ANSWER:
            return None
        if metrics.n_running is None or metrics.n_waiting is None:
            return None
        return metrics.n_running + metrics.n_waiting

    async def probe(self, model: str, *, is_prefill: bool) -> None:
        """Send the self-test's prompt; raise `UnsupportedEngine` if its experts cannot be trusted."""
        reason = await self._why_probe_failed(model, is_prefill=is_prefill)
        if reason is not None:
            raise UnsupportedEngine(f"self-test failed: {reason}")

    async def _why_probe_failed(self, model: str, *, is_prefill: bool) -> str | None:
        body = probe_request(model, is_prefill=is_prefill)
        try:
            async with self._session.post(
                f"{self._url}/v1/completions", json=body, timeout=_timeout(PROBE_TIMEOUT_SECONDS)
            ) as answer:
                text = await answer.text()
        except NO_ANSWER as error:
            return f"no answer: {type(error).__name__} {error}"
        if answer.status != 200:
            return f"status {answer.status}: {text[:300]}"
        document = parse_json(text)
        if not isinstance(document, dict):
            return f"no JSON object: {text[:300]}"
        return why_probe_failed(document, is_prefill=is_prefill)


def _timeout(seconds: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=seconds)
