from dataclasses import replace

import numpy as np
import pytest

from eldr_runtime.count_codec import ExpertCounts
from eldr_runtime.decode_profile import EncodedCounts
from eldr_runtime.errors import InvalidTrace, ModelMismatch
from eldr_runtime.model_shape import ModelShape
from eldr_runtime.prompt_file import Prompt
from eldr_runtime.trace_collection.spool import Collected, CollectionSettings, Spool, build_trace

SHAPE = ModelShape(model="m", n_layers=1, n_experts=4, top_k=1)
SETTINGS = CollectionSettings(prompts_hash="h", model="m", output_tokens=4, temperature=0.8, seed=1)


def counts(*by_expert: int, tokens: int | None = None, shape: ModelShape = SHAPE) -> EncodedCounts:
    covered = sum(by_expert)
    array = np.array([by_expert], dtype=np.uint32)
    return EncodedCounts.from_counts(
        ExpertCounts(shape=shape, counts=array, tokens=tokens or covered, covered=covered)
    )


def collected(name: str) -> Collected:
    return Collected(id=name, prefill=counts(2, 1, 0, 0), decode=counts(0, 0, 3, 1))


def test_a_spool_goes_on_where_it_was_left(tmp_path) -> None:
    path = tmp_path / "pack.partial"
    spool = Spool.open(path, SETTINGS)
    spool.add(collected("a"))
    again = Spool.open(path, SETTINGS)
    assert again.collected == {"a": collected("a")}
    again.add(collected("b"))
    assert set(Spool.open(path, SETTINGS).collected) == {"a", "b"}
    again.close()
    assert not path.exists()


def test_half_a_line_is_dropped_and_written_anew(tmp_path) -> None:
    path = tmp_path / "pack.partial"
    spool = Spool.open(path, SETTINGS)
    spool.add(collected("a"))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[-40:-20])
    again = Spool.open(path, SETTINGS)
    assert set(again.collected) == {"a"}
    again.add(collected("b"))
    assert set(Spool.open(path, SETTINGS).collected) == {"a", "b"}


@pytest.mark.parametrize(
    ("field", "value"),
    [("prompts_hash", "other"), ("model", "n"), ("output_tokens", 5), ("temperature", 0.5), ("seed", 2)],
)
def test_a_spool_of_other_settings_is_refused(tmp_path, field, value) -> None:
    path = tmp_path / "pack.partial"
    Spool.open(path, SETTINGS)
    with pytest.raises(InvalidTrace, match=field):
        Spool.open(path, replace(SETTINGS, **{field: value}))


def test_a_file_that_is_no_spool_is_refused_and_left_alone(tmp_path) -> None:
    path = tmp_path / "pack.partial"
    path.write_text("my notes\n")
    with pytest.raises(InvalidTrace, match="the spool of a collection"):
        Spool.open(path, SETTINGS)
    assert path.read_text() == "my notes\n"


def test_the_trace_has_the_prompts_in_their_order_and_only_known_steps() -> None:
    prompts = [Prompt(id=name, text=name, fields={"task": f"topic {name}"}) for name in "abc"]
    late = Collected(id="a", prefill=counts(2, 0, 0, 0, tokens=3), decode=counts(1, 1, 0, 0, tokens=4))
    trace = build_trace(prompts, {"b": collected("b"), "a": late}, label_field="task", source="here")
    assert trace.labels == ("topic a", "topic b")
    assert trace.prompt_tokens.tolist() == [3, 3]
    assert trace.covered_tokens.tolist() == [2, 3]
    assert trace.decode_steps is not None
    assert trace.decode_steps.tolist() == [2, 4]
    assert trace.prefill_counts.tolist() == [[[2, 0, 0, 0]], [[2, 1, 0, 0]]]


def test_two_shapes_and_no_prompt_at_all_are_refused() -> None:
    other = replace(SHAPE, model="n")
    found = {"a": collected("a"), "b": replace(collected("b"), decode=counts(1, 0, 0, 0, shape=other))}
    prompts = [Prompt(id=name, text=name, fields={}) for name in "ab"]
    with pytest.raises(ModelMismatch, match="another by"):
        build_trace(prompts, found, label_field=None, source="here")
    with pytest.raises(InvalidTrace, match="collected prompts"):
        build_trace(prompts, {}, label_field=None, source="here")
