import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eldr_runtime.errors import InvalidMessage, InvalidValue
from eldr_runtime.json_values import (
    from_json_value,
    message_from_json,
    message_to_json,
    parse_json,
    to_json_value,
)


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, kw_only=True)
class Part:
    name: str
    weight: float = 1.0

    def __post_init__(self) -> None:
        if self.weight < 0:
            raise InvalidValue(field="weight", value=self.weight, limit="0 or more")


@dataclass(frozen=True, kw_only=True)
class Whole:
    WIRE_VERSION: ClassVar[int] = 2

    v: int = 2
    count: int
    is_new: bool
    colour: Colour
    at: datetime
    parts: tuple[Part, ...]
    shares: Mapping[str, float]
    note: str | None = None
    n_parts: int = field(init=False, default=0)


PLAIN = {
    "v": 2,
    "count": 3,
    "is_new": True,
    "colour": "red",
    "at": "2026-01-31T12:00:00Z",
    "parts": [{"name": "a", "weight": 0.5}, {"name": "b"}],
    "shares": {"x": 0.25},
    "note": None,
}
WHOLE = Whole(
    count=3,
    is_new=True,
    colour=Colour.RED,
    at=datetime(2026, 1, 31, 12, tzinfo=UTC),
    parts=(Part(name="a", weight=0.5), Part(name="b")),
    shares={"x": 0.25},
)


def test_reads_by_hand() -> None:
    assert from_json_value(Whole, PLAIN) == WHOLE


def test_writes_by_hand() -> None:
    written = to_json_value(WHOLE)
    assert written == PLAIN | {"parts": [{"name": "a", "weight": 0.5}, {"name": "b", "weight": 1.0}]}
    assert message_to_json(WHOLE) == json.dumps(written, separators=(",", ":"))


def test_a_time_of_another_zone_becomes_utc() -> None:
    east = datetime(2026, 1, 31, 14, 0, 0, 250_000, tzinfo=timezone(timedelta(hours=2)))
    assert to_json_value(east) == "2026-01-31T12:00:00.250000Z"
    assert from_json_value(datetime, "2026-01-31T14:00:00.25+02:00") == east


@pytest.mark.parametrize(
    ("change", "path", "limit"),
    [
        ({"count": True}, "$.count", "an integer"),
        ({"count": 3.0}, "$.count", "an integer"),
        ({"count": "3"}, "$.count", "an integer"),
        ({"is_new": 1}, "$.is_new", "true or false"),
        ({"colour": "green"}, "$.colour", "one of red, blue"),
        ({"at": "2026-01-31T12:00:00"}, "$.at", "zone"),
        ({"at": "yesterday"}, "$.at", "RFC 3339"),
        ({"at": 17}, "$.at", "RFC 3339"),
        ({"at": "0001-01-01T00:00:00+14:00"}, "$.at", "RFC 3339"),
        ({"parts": {}}, "$.parts", "an array"),
        ({"parts": [{"name": "a"}, 7]}, "$.parts[1]", "an object"),
        ({"parts": [{"name": 7}]}, "$.parts[0].name", "a string"),
        ({"parts": [{"name": "a", "weight": -1}]}, "$.parts[0].weight", "0 or more"),
        ({"parts": [{}]}, "$.parts[0].name", "present"),
        ({"shares": {"x": math.nan}}, "$.shares.x", "a finite number"),
        ({"shares": {"x": 10**400}}, "$.shares.x", "64 bits"),
        ({"shares": {"x": False}}, "$.shares.x", "a number"),
        ({"shares": {1: 0.5}}, "$.shares key", "a string"),
        ({"shares": []}, "$.shares", "an object"),
        ({"note": 5}, "$.note", "a string"),
    ],
)
def test_refuses_with_path_and_expectation(change: dict[str, object], path: str, limit: str) -> None:
    with pytest.raises(InvalidMessage) as refused:
        from_json_value(Whole, PLAIN | change)
    assert refused.value.field == path
    assert limit in refused.value.limit


def test_unknown_fields_are_ignored_in_data_and_refused_in_commands() -> None:
    newer = PLAIN | {"flavour": "sour"}
    assert from_json_value(Whole, newer) == WHOLE
    with pytest.raises(InvalidMessage, match=r"\$\.flavour is 'sour'"):
        from_json_value(Whole, newer, unknown="refuse")
    deep = PLAIN | {"parts": [{"name": "a", "size": 4}]}
    with pytest.raises(InvalidMessage, match=r"\$\.parts\[0\]\.size"):
        from_json_value(Whole, deep, unknown="refuse")


@pytest.mark.parametrize("version", [1, 2])
def test_takes_its_own_version_and_the_one_before(version: int) -> None:
    assert message_from_json(Whole, json.dumps(PLAIN | {"v": version})).v == version


@pytest.mark.parametrize("version", [0, 3, True, "2", None])
def test_refuses_other_versions_before_anything_else(version: object) -> None:
    with pytest.raises(InvalidMessage, match=r"\$\.v is .* 1 or 2"):
        message_from_json(Whole, json.dumps({"v": version, "nothing": "else fits"}))


@pytest.mark.parametrize(
    "text", ["", "{", b"\xff\xfe\x00", "[" * 100_000, '{"count": NaN}', "-Infinity", "9" * 5_000]
)
def test_refuses_what_is_not_json(text: str | bytes) -> None:
    with pytest.raises(InvalidMessage):
        parse_json(text)


def test_a_large_wrong_value_does_not_flood_the_message() -> None:
    with pytest.raises(InvalidMessage) as refused:
        from_json_value(int, "x" * 10_000)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("value", [math.nan, math.inf, datetime(2026, 1, 1)])  # noqa: DTZ001
def test_refuses_to_write(value: object) -> None:
    with pytest.raises(InvalidMessage):
        to_json_value(value)


def test_a_type_without_a_json_form_is_a_fault_of_the_program() -> None:
    with pytest.raises(TypeError, match="no JSON form"):
        from_json_value(complex, 1)
    with pytest.raises(TypeError, match="no JSON form"):
        to_json_value(1j)


@settings(max_examples=100, deadline=None)
@given(
    whole=st.builds(
        Whole,
        v=st.just(2),
        count=st.integers(),
        is_new=st.booleans(),
        colour=st.sampled_from(Colour),
        at=st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
        parts=st.lists(
            st.builds(Part, name=st.text(), weight=st.floats(0, allow_infinity=False)), max_size=3
        ).map(tuple),
        shares=st.dictionaries(st.text(), st.floats(allow_nan=False, allow_infinity=False), max_size=3),
        note=st.none() | st.text(),
    )
)
def test_round_trip(whole: Whole) -> None:
    assert message_from_json(Whole, message_to_json(whole), unknown="refuse") == whole
    assert message_from_json(Whole, message_to_json(whole).encode()) == whole
