"""Counts collected so far, on disk: what a collection that was interrupted goes on from."""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from eldr_runtime.count_codec import ExpertCounts
from eldr_runtime.decode_profile import EncodedCounts
from eldr_runtime.errors import InvalidMessage, InvalidTrace, ModelMismatch
from eldr_runtime.expert_trace import ExpertTrace
from eldr_runtime.json_values import from_json_value, parse_json, to_json_value
from eldr_runtime.prompt_file import Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionSettings:
    """What a collection asks of the fleet; a spool goes on only under equal settings."""

    prompts_hash: str
    model: str
    output_tokens: int
    temperature: float
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The counts of one prompt."""

    id: str
    prefill: EncodedCounts
    decode: EncodedCounts


class Spool:
    """An append-only file: the settings in its first line, then one prompt a line, each on disk when added.

    Attributes
    ----------
    collected
        What is there, by prompt id.
    """

    def __init__(self, path: Path, settings: CollectionSettings, collected: dict[str, Collected]) -> None:
        self.path = path
        self.settings = settings
        self.collected = collected

    @classmethod
    def open(cls, path: Path, settings: CollectionSettings) -> Self:
        """Open the spool of an interrupted collection, or begin one.

        Raises
        ------
        InvalidTrace
            If the spool is of other prompts or settings.
        """
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            spool = cls(path, settings, {})
            spool._append(json.dumps(to_json_value(settings)))
            return spool
        lines = path.read_text().splitlines(keepends=True)
        _check_settings(path, lines, settings)
        whole = [line for line in lines if line.endswith("\n")]
        if len(whole) < len(lines):  # the machine went down in the middle of a line
            with path.open("r+") as stream:
                stream.truncate(sum(len(line.encode()) for line in whole))
        collected = (from_json_value(Collected, parse_json(line)) for line in whole[1:])
        return cls(path, settings, {one.id: one for one in collected})

    def add(self, one: Collected) -> None:
        """Keep the counts of a prompt."""
        self._append(json.dumps(to_json_value(one), separators=(",", ":")))
        self.collected[one.id] = one

    def close(self) -> None:
        """Remove the file: its content is in a trace pack, or not wanted any more."""
        self.path.unlink()

    def _append(self, line: str) -> None:
        with self.path.open("a") as stream:
            stream.write(line + "\n")
            stream.flush()
            os.fsync(stream.fileno())


def build_trace(
    prompts: Iterable[Prompt],
    collected: dict[str, Collected],
    *,
    label_field: str | None,
    source: str,
) -> ExpertTrace:
    """Put the counts of the prompts that have some into a trace, in the order of the prompts.

    Raises
    ------
    ModelMismatch
        If two prompts were served by models of different shapes.
    """
    kept = [(prompt, collected[prompt.id]) for prompt in prompts if prompt.id in collected]
    if not kept:
        raise InvalidTrace(field="collected prompts", value=0, limit="at least 1")
    opened = [(one.prefill.to_counts(), one.decode.to_counts()) for _, one in kept]
    shape = opened[0][0].shape
    for counts in (each for pair in opened for each in pair):
        if counts.shape != shape:
            raise ModelMismatch(f"one prompt was served by {shape}, another by {counts.shape}")
    return ExpertTrace(
        shape=shape,
        prefill_counts=np.stack([prefill.counts for prefill, _ in opened]),
        prompt_tokens=np.array([prefill.tokens for prefill, _ in opened], dtype=np.int64),
        covered_tokens=np.array([prefill.covered for prefill, _ in opened], dtype=np.int64),
        decode_counts=np.stack([decode.counts for _, decode in opened]),
        decode_steps=np.array([_steps(decode) for _, decode in opened], dtype=np.int64),
        labels=None if label_field is None else tuple(prompt.fields[label_field] for prompt, _ in kept),
        source=source,
    )


def _steps(decode: ExpertCounts) -> int:
    """Return the steps whose experts are known: a step of which they are not is in no count."""
    return decode.covered


def _check_settings(path: Path, lines: list[str], settings: CollectionSettings) -> None:
    try:
        found = from_json_value(CollectionSettings, parse_json(lines[0] if lines else ""))
    except InvalidMessage as error:
        raise InvalidTrace(
            field=str(path), value=(lines or [""])[0][:60], limit="the spool of a collection"
        ) from error
    for name in CollectionSettings.__slots__:
        if getattr(found, name) != getattr(settings, name):
            raise InvalidTrace(
                field=f"{path}: {name}",
                value=getattr(found, name),
                limit=f"{getattr(settings, name)!r}, as asked now; remove the file to begin anew",
            )
