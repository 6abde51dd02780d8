"""What capturing experts costs a vLLM worker, in paired rounds with and without it."""

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from eldr_runtime.errors import UnsupportedEngine
from eldr_runtime.vllm_adapter.command_line import IN_PROCESS_ENVIRONMENT

PROBE = "eldr_runtime.vllm_adapter.capture_probe"
LOG_TAIL = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedTimes:
    """Time with capture against time without, over the paired rounds.

    Attributes
    ----------
    ratio, quartiles
        With over without: the median, and the quartiles about it.
    added_ms
        With less without, milliseconds: the median. What capture adds by layer and by step does not grow
        with the model's width, as the time beside it does.
    """

    ratio: float
    quartiles: tuple[float, float]
    added_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureCost:
    """Times of a prefill of 16 prompts and of a decode step, and what the processes took at most, MiB."""

    n_rounds: int
    prefill: PairedTimes
    decode_step: PairedTimes
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
    with _probe(python, checkpoint, "with") as capturing, _probe(python, checkpoint, "without") as plain:
        peaks = [probe.read()["peak_mib"] for probe in (capturing, plain)]
        for number in range(n_rounds):
            rounds.append(_paired_round(capturing, plain, is_capturing_first=number % 2 == 0))
            on_round(number + 1)
    return CaptureCost(
        n_rounds=n_rounds,
        prefill=_paired([(one["prefill_ms"], other["prefill_ms"]) for one, other in rounds]),
        decode_step=_paired([(one["step_ms"], other["step_ms"]) for one, other in rounds]),
        peak_mib_with=peaks[0],
        peak_mib_without=peaks[1],
    )


@dataclass(frozen=True, slots=True)
class _Probe:
    """A vLLM in a process of its own, that answers a line with a round's times."""

    process: "subprocess.Popen[str]"
    log: IO[str]

    def ask(self) -> dict[str, float]:
        """Let it work a round."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended: reading says why
            self.process.stdin.write("round\n")
            self.process.stdin.flush()
        return self.read()

    def read(self) -> dict[str, float]:
        """Read the next line that is an answer: what vLLM itself prints is not."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                document: dict[str, float] = json.loads(line)
                return document
        self.log.seek(0)
        raise UnsupportedEngine(f"vLLM ended in the middle of the measurement: {self.log.read()[-LOG_TAIL:]}")


@contextmanager
def _probe(python: Path, checkpoint: Path, capture: str) -> Iterator[_Probe]:
    """Start a probe, and end it."""
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
            yield _Probe(process, log)
        finally:
            process.kill()
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # a line that it did not read
                process.stdin.close()


def _paired_round(
    capturing: _Probe, plain: _Probe, *, is_capturing_first: bool
) -> tuple[dict[str, float], dict[str, float]]:
    if is_capturing_first:
        first = capturing.ask()
        return first, plain.ask()
    second = plain.ask()
    return capturing.ask(), second


def _paired(times_ms: Sequence[tuple[float, float]]) -> PairedTimes:
    pairs = np.array(times_ms)
    low, median, high = np.quantile(pairs[:, 0] / pairs[:, 1], [0.25, 0.5, 0.75])
    added_ms = float(np.median(pairs[:, 0] - pairs[:, 1]))
    return PairedTimes(ratio=float(median), quartiles=(float(low), float(high)), added_ms=added_ms)
