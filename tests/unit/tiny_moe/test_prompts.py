from collections import Counter
from pathlib import Path

import pytest

from assets.tiny_moe.documents import Document, split
from assets.tiny_moe.groups import GROUPS, LANGUAGE_GROUPS
from assets.tiny_moe.prompts import (
    PROMPT_TOKENS,
    PROMPTS_PER_GROUP,
    LabelledPrompt,
    excerpts,
    group_prompts,
    write_prompts,
)
from eldr_runtime.cli.shipped import PROMPTS, TINY_MOE
from eldr_runtime.prompt_file import Prompt, read_prompts

NOTICE = TINY_MOE.parent / "NOTICE"


def _character_ends(text: str) -> list[int]:
    return list(range(1, len(text) + 1))


@pytest.fixture(scope="module")
def shipped() -> tuple[Prompt, ...]:
    labels = ("group", "task", "language", "source")
    return read_prompts(PROMPTS, required=labels).prompts


def test_excerpts_start_at_lines_and_do_not_overlap() -> None:
    text = "abcdef\nghijkl\nmn"
    assert excerpts(text, _character_ends(text), n_tokens=4) == ["abcd", "ghij"]


def test_excerpts_without_a_further_line_end() -> None:
    assert excerpts("abcdef", _character_ends("abcdef"), n_tokens=2) == ["ab"]
    assert excerpts("a", [1], n_tokens=2) == []


def test_excerpts_with_addresses_are_left_out() -> None:
    text = "me@here.net\nfine, this"
    assert excerpts(text, _character_ends(text), n_tokens=10) == ["fine, this"]


def test_prompts_take_documents_in_turn_and_refuse_too_few() -> None:
    lines = "\n".join("x" * PROMPT_TOKENS for _ in range(PROMPTS_PER_GROUP))
    documents = [Document(name=name, family=name, text=lines) for name in ("a", "b")]
    prompts = group_prompts(GROUPS[0], documents, _character_ends)
    assert len(prompts) == PROMPTS_PER_GROUP
    assert [prompt.source for prompt in prompts[:3]] == [
        "python-standard-library: a",
        "python-standard-library: b",
        "python-standard-library: a",
    ]
    with pytest.raises(ValueError, match="0 prompts in group code; 120 are needed"):
        group_prompts(GROUPS[0], [], _character_ends)


def test_prompts_survive_writing_and_reading(tmp_path: Path) -> None:
    labels = {"group": "code", "task": "code", "language": "en", "source": "s: d"}
    text = "é\u2028\n"
    write_prompts([LabelledPrompt(id="a", text=text, **labels)], tmp_path / "prompts.jsonl")
    assert read_prompts(tmp_path / "prompts.jsonl").prompts == (Prompt(id="a", text=text, fields=labels),)


def test_shipped_prompts_are_well_formed(shipped: tuple[Prompt, ...]) -> None:
    assert len(shipped) >= 1_200
    assert len({prompt.id for prompt in shipped}) == len(shipped)
    assert Counter(prompt.fields["group"] for prompt in shipped) == {
        group.name: PROMPTS_PER_GROUP for group in GROUPS
    }
    labels = {group.name: (group.task, group.language) for group in GROUPS}
    for fields in (prompt.fields for prompt in shipped):
        assert (fields["task"], fields["language"]) == labels[fields["group"]]
    assert all(prompt.text.strip() for prompt in shipped)


def test_shipped_prompts_name_sources_that_notice_names(shipped: tuple[Prompt, ...]) -> None:
    notice = NOTICE.read_text()
    packages = {prompt.fields["source"].partition(": ")[0] for prompt in shipped}
    assert packages == {group.package for group in GROUPS}
    assert [package for package in packages if f"\n{package}\n" not in notice] == []


def test_shipped_prompts_of_pages_are_held_out_in_every_language(shipped: tuple[Prompt, ...]) -> None:
    languages = {group.language for group in LANGUAGE_GROUPS}
    help_fields = [p.fields for p in shipped if p.fields["task"] == "software_help"]
    pages = {fields["source"].partition(": ")[2] for fields in help_fields}
    assert {fields["language"] for fields in help_fields} == languages
    training, _ = split([Document(name=page, family=page, text="") for page in sorted(pages)])
    assert training == []
