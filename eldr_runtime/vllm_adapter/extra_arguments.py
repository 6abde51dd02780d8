"""Arguments for vLLM that the launcher passes on, and those it refuses before anything starts."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from eldr_runtime.errors import InvalidConfig, UnsupportedEngine
from eldr_runtime.vllm_adapter.self_test import EngineSetUp, refusals

_SIZES = {
    "--tensor-parallel-size": "tensor_parallel_size",
    "--pipeline-parallel-size": "pipeline_parallel_size",
    "--data-parallel-size": "data_parallel_size",
    "--decode-context-parallel-size": "context_parallel_size",
    "--prefill-context-parallel-size": "context_parallel_size",
}
_FLAGS = {
    "--enable-expert-parallel": "is_expert_parallel",
    "--enable-eplb": "is_expert_load_balanced",
    "--speculative-config": "is_speculative",
    "--async-scheduling": "is_async_scheduled",
    "--enable-dbo": "is_micro_batched",
    "--ubatch-size": "is_micro_batched",
}
_SHORT = {
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-dp": "--data-parallel-size",
    "-dcp": "--decode-context-parallel-size",
    "-pcp": "--prefill-context-parallel-size",
    "-ep": "--enable-expert-parallel",
    "-sc": "--speculative-config",
}
_OWNED = {
    "--model": "the launcher sets it",
    "--served-model-name": "the launcher sets it",
    "--host": "the launcher sets it",
    "--port": "the launcher sets it",
    "--max-num-seqs": "give it as --capacity",
    "--kv-transfer-config": "the launcher sets it",
    "--api-key": "routers send workers no key",
    "--config": "a file could set what the launcher must see",
}
_WATCHED = (*_SIZES, *_FLAGS, *_OWNED)


def check_extra_arguments(arguments: Sequence[str]) -> None:
    """Raise `UnsupportedEngine` or `InvalidConfig` with the reason for the first argument that is refused.

    Examples
    --------
    >>> check_extra_arguments(["--max-model-len", "2048", "-tp", "1"])
    >>> check_extra_arguments(["--tensor_parallel_size=2"])
    Traceback (most recent call last):
    ...
    eldr_runtime.errors.UnsupportedEngine: tensor_parallel_size is 2; must be 1: ranks were never checked \
to see the same
    """
    for name, value in _named(arguments):
        if name in _OWNED:
            raise InvalidConfig(field=name, value=value, limit=f"left out: {_OWNED[name]}")
        found = refusals(_set_up_with(name, value))
        if found:
            raise UnsupportedEngine(found[0])


def _set_up_with(name: str, value: str) -> EngineSetUp:
    if name in _FLAGS:
        return replace(EngineSetUp(n_experts=2), **{_FLAGS[name]: True})
    if not value.isdecimal():
        raise InvalidConfig(field=name, value=value, limit="a number")
    return replace(EngineSetUp(n_experts=2), **{_SIZES[name]: int(value)})  # type: ignore[arg-type]


def _named(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield those that are watched, under their long names, each with its value or the argument after it."""
    for argument, following in pairwise([*arguments, ""]):
        if not argument.startswith("-"):
            continue
        flag, equals, value = argument.partition("=")
        name = _long_name(flag)
        if name is not None:
            yield name, value if equals else following


def _long_name(flag: str) -> str | None:
    """Return the watched name; vLLM takes underscores, any beginning of a name, and `--name.key` for JSON."""
    flag = flag.partition(".")[0].replace("_", "-")
    if flag in _SHORT:
        return _SHORT[flag]
    if flag in _WATCHED:
        return flag
    return next((name for name in _WATCHED if len(flag) > 2 and name.startswith(flag)), None)
