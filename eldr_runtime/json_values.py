"""Frozen dataclasses to JSON values and back, driven by their type hints.

Supported: dataclasses, `tuple[T, ...]`, `Mapping[str, T]`, `T | None`, `StrEnum`, `bool`, `int`, `float`,
`str` and aware `datetime` (RFC 3339, UTC, `Z`). What does not fit is refused with the path of the value, such
as `$.workers[2].url`. A boolean is no integer, and NaN is no number.
"""

import dataclasses
import json
import math
import types
from collections.abc import Callable, Hashable, Mapping
from datetime import UTC, datetime
from enum import Enum, StrEnum
from functools import lru_cache, partial
from typing import (
    ClassVar,
    Literal,
    Protocol,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from eldr_runtime.errors import InvalidMessage, InvalidValue

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
UnknownFields: TypeAlias = Literal["ignore", "refuse"]

T = TypeVar("T")
_Reader: TypeAlias = Callable[[object, str, UnknownFields], object]


class WireMessage(Protocol):
    """A dataclass that carries the version of its wire format."""

    WIRE_VERSION: ClassVar[int]

    @property
    def v(self) -> int:
        """Version the message was written in."""


M = TypeVar("M", bound=WireMessage)


def message_from_json(cls: type[M], text: str | bytes, *, unknown: UnknownFields = "ignore") -> M:
    """Read a message from JSON text; the version is looked at before anything else."""
    return message_from_value(cls, parse_json(text), unknown=unknown)


def message_from_value(cls: type[M], value: object, *, unknown: UnknownFields = "ignore") -> M:
    """Read a message of the class's version or the one before from a JSON value.

    Data ignores fields it does not know, so that a newer sender is understood; a command refuses them.
    """
    if isinstance(value, Mapping) and "v" in value:
        check_wire_version(value["v"], cls.WIRE_VERSION)
    return from_json_value(cls, value, unknown=unknown)


def message_to_json(message: WireMessage) -> str:
    """Write a message as compact JSON text."""
    return json.dumps(to_json_value(message), separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def check_wire_version(version: object, current: int) -> None:
    """Refuse a version that is neither the current one nor the one before."""
    accepted = [each for each in (current - 1, current) if each >= 1]
    if isinstance(version, bool) or version not in accepted:
        limit = f"a wire version this reader takes: {' or '.join(map(str, accepted))}"
        raise InvalidMessage(field="$.v", value=version, limit=limit)


def parse_json(text: str | bytes) -> JsonValue:
    """Parse JSON text; NaN and infinities, which are not JSON, are refused."""
    try:
        value: JsonValue = json.loads(text, parse_constant=_refuse_constant)
    except InvalidMessage:
        raise
    except (ValueError, RecursionError) as error:  # an integer of over 4,300 digits is a plain ValueError
        raise InvalidMessage(field="$", value=_shorten(text), limit=f"JSON text ({error})") from error
    return value


def from_json_value(cls: type[T], value: object, *, path: str = "$", unknown: UnknownFields = "ignore") -> T:
    """Read a value of type `cls` from parsed JSON.

    Raises
    ------
    InvalidMessage
        Naming the path, the value and what was expected there.

    Examples
    --------
    >>> from_json_value(tuple[int, ...], [1, 2])
    (1, 2)
    """
    return cast(T, _reader(cast(Hashable, cls))(value, path, unknown))


def to_json_value(value: object) -> JsonValue:
    """Write a value as what `json.dumps` takes; an enum becomes its value, a time RFC 3339 in UTC."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: to_json_value(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if field.init
        }
    if isinstance(value, Enum):
        return to_json_value(value.value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidMessage(field="$", value=value, limit="a finite number")
        return value
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidMessage(field="$", value=value, limit="a time with its zone")
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, Mapping):
        return {str(key): to_json_value(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [to_json_value(each) for each in value]
    raise TypeError(f"{type(value).__name__} has no JSON form")


@lru_cache(maxsize=256)
def _reader(hint: Hashable) -> _Reader:
    """Build the reader of a type hint once."""
    if isinstance(hint, type) and hint in _SCALARS:
        return _SCALARS[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType) and len(arguments) == 2 and type(None) in arguments:
        (inner,) = (each for each in arguments if each is not type(None))
        return partial(_read_optional, _reader(inner))
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return partial(_read_tuple, _reader(arguments[0]))
    if isinstance(origin, type) and issubclass(origin, Mapping) and arguments[0] is str:
        return partial(_read_mapping, _reader(arguments[1]))
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return partial(_read_enum, hint)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return partial(_read_dataclass, hint, *_fields_of(hint))
    raise TypeError(f"{hint!r} has no JSON form")


def _fields_of(cls: type) -> tuple[Mapping[str, _Reader], frozenset[str]]:
    hints = get_type_hints(cls)
    fields = [field for field in dataclasses.fields(cls) if field.init]
    required = [
        field.name
        for field in fields
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    return {field.name: _reader(hints[field.name]) for field in fields}, frozenset(required)


def _read_dataclass(
    cls: type,
    readers: Mapping[str, _Reader],
    required: frozenset[str],
    value: object,
    path: str,
    unknown: UnknownFields,
) -> object:
    if not isinstance(value, Mapping):
        raise _mismatch(path, value, "an object")
    missing = sorted(required - value.keys())
    if missing:
        raise InvalidMessage(field=f"{path}.{missing[0]}", value="missing", limit="present")
    strangers = sorted(str(name) for name in value if name not in readers)
    if strangers and unknown == "refuse":
        limit = f"one of the fields {', '.join(readers)}"
        raise InvalidMessage(field=f"{path}.{strangers[0]}", value=value[strangers[0]], limit=limit)
    arguments = {
        name: reader(value[name], f"{path}.{name}", unknown)
        for name, reader in readers.items()
        if name in value
    }
    try:
        return cls(**arguments)
    except InvalidValue as error:
        field = f"{path}.{error.field}"
        raise InvalidMessage(field=field, value=error.value, limit=error.limit) from error


def _read_optional(inner: _Reader, value: object, path: str, unknown: UnknownFields) -> object:
    return None if value is None else inner(value, path, unknown)


def _read_tuple(inner: _Reader, value: object, path: str, unknown: UnknownFields) -> object:
    if not isinstance(value, list | tuple):
        raise _mismatch(path, value, "an array")
    return tuple([inner(each, f"{path}[{index}]", unknown) for index, each in enumerate(value)])


def _read_mapping(inner: _Reader, value: object, path: str, unknown: UnknownFields) -> object:
    if not isinstance(value, Mapping):
        raise _mismatch(path, value, "an object")
    for key in value:
        if not isinstance(key, str):
            raise _mismatch(f"{path} key", key, "a string")
    return {key: inner(each, f"{path}.{key}", unknown) for key, each in value.items()}


def _read_enum(enum: type[StrEnum], value: object, path: str, unknown: UnknownFields) -> object:
    if isinstance(value, str) and value in [member.value for member in enum]:
        return enum(value)
    raise _mismatch(path, value, f"one of {', '.join(enum)}")


def _read_bool(value: object, path: str, unknown: UnknownFields) -> object:
    if not isinstance(value, bool):
        raise _mismatch(path, value, "true or false")
    return value


def _read_int(value: object, path: str, unknown: UnknownFields) -> object:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _mismatch(path, value, "an integer")
    return value


def _read_float(value: object, path: str, unknown: UnknownFields) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _mismatch(path, value, "a number")
    try:
        number = float(value)
    except OverflowError as error:
        raise _mismatch(path, value, "a number that fits in 64 bits") from error
    if not math.isfinite(number):
        raise _mismatch(path, value, "a finite number")
    return number


def _read_str(value: object, path: str, unknown: UnknownFields) -> object:
    if not isinstance(value, str):
        raise _mismatch(path, value, "a string")
    return value


def _read_datetime(value: object, path: str, unknown: UnknownFields) -> object:
    limit = "a time with its zone as RFC 3339, such as 2026-01-31T12:00:00Z"
    if not isinstance(value, str):
        raise _mismatch(path, value, limit)
    try:
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is None:
            raise _mismatch(path, value, limit)
        return moment.astimezone(UTC)
    except (OverflowError, ValueError) as error:
        raise _mismatch(path, value, limit) from error


_SCALARS: Mapping[type, _Reader] = {
    bool: _read_bool,
    int: _read_int,
    float: _read_float,
    str: _read_str,
    datetime: _read_datetime,
}


def _mismatch(path: str, value: object, limit: str) -> InvalidMessage:
    return InvalidMessage(field=path, value=_shorten(value), limit=limit)


def _shorten(value: object) -> object:
    """Keep a message about a large value readable."""
    text = repr(value)
    return value if len(text) <= 200 else f"{text[:200]}... ({len(text)} characters)"


def _refuse_constant(name: str) -> object:
    raise InvalidMessage(field="$", value=name, limit="a finite number")
