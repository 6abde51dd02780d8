"""What capturing experts costs a vLLM worker, in paired rounds with and without it."""

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from eldr_runtime.errors import UnsupportedEngine
from eldr_runtime.vllm_adapter.command_line import IN_PROCESS_ENVIRONMENT

PROBE = "eldr_runtime.vllm_adapter.capture_probe"
LOG_TAIL = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedRatio:
    """With capture over without: the median over the paired rounds, and their quartiles."""

    median: float
    quartiles: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureCost:
    """Time ratios of a prefill and of a decode step, and what the processes took at most, MiB."""

    n_rounds: int
    prefill: PairedRatio
    decode_step: PairedRatio
    peak_mib_with: float
    peak_mib_without: float


def measure_capture(
    python: Path, checkpoint: Path, n_rounds: int, on_round: Callable[[int], None] = lambda done: None
) -> CaptureCost:
    """Load the model twice, with capture and without, and let them work in turns, never at once.

    Parameters
    ----------
    python
        Interpreter of the environment with vLLM.
    checkpoint
        Folder of the model.
    n_rounds
        Paired rounds of 16 prompts of 160 tokens with 64 decode steps; which goes first alternates.
    on_round
        Called with the rounds done so far.
    """
    rounds = []
    with (
        _probe(python, checkpoint, "with") as (capturing, peak_mib_with),
        _probe(python, checkpoint, "without") as (plain, peak_mib_without),
    ):
        for number in range(n_rounds):
            rounds.append(_paired_round(capturing, plain, is_capturing_first=number % 2 == 0))
            on_round(number + 1)
    return CaptureCost(
        n_rounds=n_rounds,
        prefill=_ratio([one["prefill_ms"] / other["prefill_ms"] for one, other in rounds]),
        decode_step=_ratio([one["step_ms"] / other["step_ms"] for one, other in rounds]),
        peak_mib_with=peak_mib_with,
        peak_mib_without=peak_mib_without,
    )


@contextmanager
def _probe(python: Path, checkpoint: Path, capture: str) -> Iterator[tuple["subprocess.Popen[str]", float]]:
    """Start a probe, yield it with its peak memory, and end it."""
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(
            [str(python), "-m", PROBE, str(checkpoint), capture],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, **IN_PROCESS_ENVIRONMENT},
        ) as process,
    ):
        try:
            yield process, _read(process, log)["peak_mib"]
        finally:
            process.kill()


def _paired_round(
    capturing: "subprocess.Popen[str]", plain: "subprocess.Popen[str]", *, is_capturing_first: bool
) -> tuple[dict[str, float], dict[str, float]]:
    if is_capturing_first:
        first = _ask(capturing)
        return first, _ask(plain)
    second = _ask(plain)
    return _ask(capturing), second


def _ask(process: "subprocess.Popen[str]") -> dict[str, float]:
    assert process.stdin is not None
    process.stdin.write("round\n")
    process.stdin.flush()
    return _read(process, None)


def _read(process: "subprocess.Popen[str]", log: IO[str] | None) -> dict[str, float]:
    """Read the next line that is an answer: what vLLM itself prints is not."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            document: dict[str, float] = json.loads(line)
            return document
    tail = ""
    if log is not None:
        log.seek(0)
        tail = log.read()[-LOG_TAIL:]
    raise UnsupportedEngine(f"vLLM ended in the middle of the measurement: {tail}")


def _ratio(ratios: Sequence[float]) -> PairedRatio:
    low, median, high = np.quantile(ratios, [0.25, 0.5, 0.75])
    return PairedRatio(median=float(median), quartiles=(float(low), float(high)))
