import pytest

from eldr_runtime.errors import InvalidTrace
from eldr_runtime.prompt_file import Prompt, read_prompts

ONE = '{"text": "a", "id": "x", "task": "code"}'


def write(tmp_path, *lines):
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_id_text_fields_and_the_line_number_for_a_missing_id(tmp_path) -> None:
    path = write(tmp_path, '{"id": "a", "text": "one", "task": "code"}', "", '{"text": "two", "task": "law"}')
    assert read_prompts(path, required=["task"]).prompts == (
        Prompt(id="a", text="one", fields={"task": "code"}),
        Prompt(id="3", text="two", fields={"task": "law"}),
    )
    assert read_prompts(path, limit=1).prompts == (Prompt(id="a", text="one", fields={"task": "code"}),)


def test_a_separator_of_unicode_is_part_of_its_line(tmp_path) -> None:
    path = write(tmp_path, '{"text": "one\u2028two"}')
    assert read_prompts(path).prompts[0].text == "one\u2028two"


def test_bytes_that_are_no_text_are_refused(tmp_path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_bytes(b'{"text": "\xff"}\n')
    with pytest.raises(InvalidTrace, match="byte 10"):
        read_prompts(path)


def test_the_hash_follows_every_byte(tmp_path) -> None:
    first = read_prompts(write(tmp_path, '{"text": "one"}')).content_hash
    assert read_prompts(write(tmp_path, '{"text": "onE"}')).content_hash != first


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        (["[1]"], "line 1 is '[1]'; must be a JSON object"),
        (["{"], "line 1 is '{'; must be a JSON object"),
        (['{"text": ""}'], "line 1: text is ''"),
        ([ONE, ONE], "line 2: id is 'x'"),
        (['{"text": "a"}'], "line 1: task is None"),
        ([""], "prompts is 0"),
    ],
)
def test_what_is_wrong_is_named_by_line_and_field(tmp_path, lines, named) -> None:
    with pytest.raises(InvalidTrace) as refused:
        read_prompts(write(tmp_path, *lines), required=["task"])
    assert named in str(refused.value)
