"""Prompts of a file, for load that a real model answers."""

from dataclasses import dataclass
from pathlib import Path

from eldr_runtime.errors import UnreadableFile
from eldr_runtime.json_values import from_json_value, parse_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One line of a prompt file; other fields are not read."""

    text: str
    task: str
    language: str

    @property
    def topic(self) -> str:
        """What the load draws by: the task, with its language where that is not English."""
        return self.task if self.language == "en" else f"{self.task}-{self.language}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSet:
    """Texts to complete and the topic of each."""

    texts: tuple[str, ...]
    topics: tuple[str, ...]


def read_prompt_set(path: Path) -> PromptSet:
    """Read a file of JSON lines with `text`, `task` and `language`; raise `UnreadableFile` if it has none."""
    lines = path.read_text(encoding="utf-8").split("\n")
    prompts = [from_json_value(Prompt, parse_json(line)) for line in lines if line.strip()]
    if not prompts:
        raise UnreadableFile(f"{path} holds no prompt")
    return PromptSet(
        texts=tuple(prompt.text for prompt in prompts), topics=tuple(prompt.topic for prompt in prompts)
    )
