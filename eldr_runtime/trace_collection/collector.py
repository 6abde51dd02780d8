"""Sends prompts through a router and keeps the expert counts that come back with the answers."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import aiohttp

from eldr_runtime.decode_profile import EncodedCounts
from eldr_runtime.errors import EldrError, InvalidMessage
from eldr_runtime.expert_trace import UNCOVERED_LIMIT_SHARE
from eldr_runtime.json_values import from_json_value, parse_json
from eldr_runtime.prompt_file import Prompt
from eldr_runtime.trace_collection.spool import Collected, CollectionSettings, Spool
from eldr_runtime.vllm_adapter.wire_format import COUNTS_FIELD, DECODE_COUNTS_FIELD

N_PASSES = 3
PAUSE_SECONDS = 2.0
ANSWER_SECONDS = 600.0

OnProgress = Callable[[int, int], None]
"""Called with the prompts that have counts and all of them."""


class CollectionFailed(EldrError):
    """More prompts got no counts than a trace may lack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a prompt got no counts."""

    prompt_id: str
    reason: str


async def find_model(router_url: str) -> str:
    """Return the name of the model that a router serves."""
    try:
        async with aiohttp.ClientSession() as session, session.get(f"{router_url}/v1/models") as response:
            response.raise_for_status()
            document = await response.json()
            return str(document["data"][0]["id"])
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError, LookupError, TypeError) as error:
        reason = str(error) or type(error).__name__
        raise CollectionFailed(f"{router_url} does not say which model it serves: {reason}") from error


async def collect(
    prompts: Sequence[Prompt],
    spool: Spool,
    router_url: str,
    *,
    concurrency: int,
    on_progress: OnProgress,
) -> tuple[Failure, ...]:
    """Collect the counts of all prompts that the spool lacks; what failed is tried again in two more passes.

    Returns
    -------
    The prompts that are left out, at most 1 %.

    Raises
    ------
    CollectionFailed
        If more failed; the spool keeps the others.
    """
    failures: list[Failure] = []

    async def work(session: aiohttp.ClientSession, queue: Iterator[Prompt]) -> None:
        for prompt in queue:
            try:
                spool.add(await _one(session, router_url, prompt, spool.settings))
            except (aiohttp.ClientError, TimeoutError, OSError, InvalidMessage) as error:
                reason = str(error) or type(error).__name__
                failures.append(Failure(prompt_id=prompt.id, reason=reason))
            on_progress(len(spool.collected), len(prompts))

    timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        for n_pass in range(N_PASSES):
            if n_pass:
                await asyncio.sleep(PAUSE_SECONDS)
            failures.clear()
            missing = iter([prompt for prompt in prompts if prompt.id not in spool.collected])
            async with asyncio.TaskGroup() as group:
                for _ in range(concurrency):
                    group.create_task(work(session, missing))
            if not failures:
                return ()
    if len(failures) > UNCOVERED_LIMIT_SHARE * len(prompts):
        first, limit = failures[0], f"at most {UNCOVERED_LIMIT_SHARE:.0%} may lack them"
        message = f"{len(failures)} of {len(prompts)} prompts got no counts; {limit}"
        raise CollectionFailed(f"{message}; {first.prompt_id}: {first.reason}")
    return tuple(failures)


async def _one(
    session: aiohttp.ClientSession, router_url: str, prompt: Prompt, settings: CollectionSettings
) -> Collected:
    body = {
        "model": settings.model, "prompt": prompt.text, "max_tokens": settings.output_tokens,
        "temperature": settings.temperature, "seed": settings.seed, "ignore_eos": True, "stream": False,
        "kv_transfer_params": {COUNTS_FIELD: True, DECODE_COUNTS_FIELD: True},
    }  # fmt: skip
    async with session.post(f"{router_url}/v1/completions", json=body) as response:
        if response.status != 200:
            text = (await response.text())[:200]
            raise InvalidMessage(field="status", value=response.status, limit=f"200 ({text})")
        answer = _object(await response.read())
    parameters = answer.get("kv_transfer_params")
    if not isinstance(parameters, dict):
        parameters = {}
    return Collected(
        id=prompt.id,
        prefill=_counts(parameters, COUNTS_FIELD),
        decode=_counts(parameters, DECODE_COUNTS_FIELD),
    )


def _counts(parameters: dict[str, object], field: str) -> EncodedCounts:
    message = parameters.get(field)
    if not message:
        limit = "present: does every worker run the plugin, and has its self-test passed?"
        raise InvalidMessage(field=f"kv_transfer_params.{field}", value=message, limit=limit)
    counts = from_json_value(EncodedCounts, message, path=f"$.kv_transfer_params.{field}")
    counts.to_counts()  # refused here, where it is known whose they are
    if counts.covered < 1:
        limit = "at least 1: the experts of no token are known"
        raise InvalidMessage(field=f"kv_transfer_params.{field}.covered", value=counts.covered, limit=limit)
    return counts


def _object(data: bytes) -> dict[str, object]:
    document = parse_json(data)
    if not isinstance(document, dict):
        raise InvalidMessage(field="answer", value=data[:60], limit="a JSON object")
    return dict(document)
