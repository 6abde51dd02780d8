import json
from pathlib import Path

import numpy as np
import pytest

from eldr_runtime.errors import EldrError
from eldr_runtime.simulated_fleet.load_generator import LoadGenerator, LoadSettings
from eldr_runtime.simulated_fleet.prompt_set import read_prompt_set
from eldr_runtime.simulated_fleet.traffic_mix import TrafficMix

LINES = [
    {"id": "a", "task": "code", "language": "en", "text": "def f(\u2028x", "source": "here"},
    {"id": "b", "task": "help", "language": "de", "text": "Die Datei"},
]


@pytest.fixture
def prompt_file(tmp_path: Path) -> Path:
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in LINES), encoding="utf-8")
    return file


def test_topics_are_tasks_with_their_language(prompt_file: Path) -> None:
    prompts = read_prompt_set(prompt_file)
    assert prompts.texts == ("def f(\u2028x", "Die Datei")
    assert prompts.topics == ("code", "help-de")


def test_prompts_are_sent_as_they_are_and_sampled(prompt_file: Path) -> None:
    prompts = read_prompt_set(prompt_file)
    settings = LoadSettings(
        router_url="http://127.0.0.1:1", model="tiny", rate_per_second=1.0, prompt_tokens=12, output_tokens=8,
        duration_seconds=1.0, drain_seconds=1.0, max_in_flight=4, seed=1, prompts=prompts,
    )  # fmt: skip
    mix = TrafficMix(prompts.topics, unseen_topic=None, topic_shares=None, rng=np.random.default_rng(1))
    body = LoadGenerator(settings, mix)._body(1, "1-1")
    assert (body["prompt"], body["temperature"], body["max_tokens"]) == ("Die Datei", 0.8, 8)


@pytest.mark.parametrize("text", ["", '{"text": "no task"}\n', "not JSON\n"])
def test_files_that_hold_no_prompts_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(text)
    with pytest.raises(EldrError):
        read_prompt_set(file)
