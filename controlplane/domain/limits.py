"""Limits of the values people set."""

from eldr_runtime.errors import InvalidValue


def check_between(field: str, value: float, low: float, high: float) -> None:
    """Refuse a number outside its range, or none at all (NaN)."""
    if not low <= value <= high:
        raise InvalidValue(field=field, value=value, limit=f"from {low} to {high}")


def check_length(field: str, text: str, longest: int) -> None:
    """Refuse an empty text or one that is too long."""
    if not 1 <= len(text) <= longest:
        raise InvalidValue(field=field, value=text[:80], limit=f"1 to {longest} characters")
