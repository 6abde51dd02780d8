import json

import numpy as np
import pytest

from eldr_runtime.count_codec import ExpertCounts
from eldr_runtime.decode_profile import DecodeProfile, EncodedCounts
from eldr_runtime.errors import InvalidMessage
from eldr_runtime.model_shape import ModelShape

COUNTS = ExpertCounts(
    shape=ModelShape(model="tiny", n_layers=2, n_experts=3, top_k=2),
    counts=np.array([[4, 3, 1], [2, 2, 4]], dtype=np.uint32),
    tokens=4,
    covered=4,
)
PROFILE = DecodeProfile(
    request_id="r-1", worker_id="decode-0", steps=4, counts=EncodedCounts.from_counts(COUNTS)
)


def test_counts_survive_the_wire() -> None:
    again = DecodeProfile.from_json(PROFILE.to_json())
    assert again == PROFILE
    opened = again.counts.to_counts()
    assert opened.counts.tolist() == COUNTS.counts.tolist()
    assert (opened.shape, opened.tokens, opened.covered) == (COUNTS.shape, 4, 4)


def test_the_fields_by_hand() -> None:
    written = json.loads(PROFILE.to_json())
    assert list(written) == ["v", "request_id", "worker_id", "steps", "counts"]
    assert {
        "v",
        "model",
        "layers",
        "experts",
        "top_k",
        "encoding",
        "counts",
        "tokens",
        "covered",
        "cached",
    } == set(written["counts"])


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"steps": 0}, "$.steps"),
        ({"steps": 5}, "$.counts.tokens"),
        ({"v": 2}, "$.v"),
        ({"counts": None}, "$.counts"),
    ],
)
def test_refuses(change: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidMessage) as refused:
        DecodeProfile.from_json(json.dumps(json.loads(PROFILE.to_json()) | change))
    assert refused.value.field == field


def test_counts_that_do_not_add_up_are_refused_when_opened() -> None:
    written = json.loads(PROFILE.to_json())
    written["counts"]["covered"] = 3
    profile = DecodeProfile.from_json(json.dumps(written))
    with pytest.raises(InvalidMessage):
        profile.counts.to_counts()
