"""Prompts of a file and their topics, for load that a real model answers."""

from dataclasses import dataclass
from pathlib import Path

from eldr_runtime.prompt_file import Prompt, read_prompts


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSet:
    """Texts to complete and the topic of each, by which the load draws them."""

    texts: tuple[str, ...]
    topics: tuple[str, ...]


def read_prompt_set(path: Path) -> PromptSet:
    """Read a prompt file; raise `InvalidTrace` where a line lacks its `task` or its `language`."""
    prompts = read_prompts(path, required=("task", "language")).prompts
    return PromptSet(
        texts=tuple(prompt.text for prompt in prompts), topics=tuple(_topic(prompt) for prompt in prompts)
    )


def _topic(prompt: Prompt) -> str:
    """Return the task, with its language where that is not English."""
    task, language = prompt.fields["task"], prompt.fields["language"]
    return task if language == "en" else f"{task}-{language}"
