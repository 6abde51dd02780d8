"""How values are written for people: short, with their unit, and never a raw identifier."""

from datetime import UTC, datetime

NO_INTERVAL = "no interval yet"
NOTHING = "–"
STEPS = ((86_400, "d"), (3600, "h"), (60, "min"))


def duration(seconds: float) -> str:
    """Write a span of time in its largest unit.

    Examples
    --------
    >>> duration(7), duration(95), duration(7200), duration(200_000)
    ('7 s', '2 min', '2 h', '2 d')
    """
    for size, unit in STEPS:
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def age(at: datetime, now: datetime | None = None) -> str:
    """Write how long ago something was."""
    now = datetime.now(UTC) if now is None else now
    return f"{duration((now - at).total_seconds())} ago"


def moment(at: datetime | None) -> str:
    """Write a time of day in UTC, with its date."""
    return NOTHING if at is None else f"{at.astimezone(UTC):%d %b %H:%M:%S}"


def number(value: float | None, digits: int = 1, unit: str = "") -> str:
    """Write a number, or a dash where there is none.

    Examples
    --------
    >>> number(31.26, 1, "ms"), number(None), number(12345.6, 0)
    ('31.3 ms', '–', '12,346')
    """
    if value is None:
        return NOTHING
    return f"{value:,.{digits}f}{f' {unit}' if unit else ''}"


def signed(value: float | None, digits: int = 1, unit: str = "%") -> str:
    """Write a change with its sign; a true minus, not a hyphen.

    Examples
    --------
    >>> signed(-11.84), signed(0.3), signed(None)
    ('−11.8 %', '+0.3 %', '–')
    """
    if value is None:
        return NOTHING
    return f"{value:+,.{digits}f}{f' {unit}' if unit else ''}".replace("-", "−")


def interval(ends: tuple[float, ...] | None, digits: int = 1, *, is_change: bool = True) -> str:
    """Write the two ends of a 95 % interval, with signs where it is of a change.

    Examples
    --------
    >>> interval((-14.2, -9.1)), interval((0.61, 0.7), 2, is_change=False), interval(None)
    ('95 %: −14.2 to −9.1', '95 %: 0.61 to 0.70', 'no interval yet')
    """
    bare = _ends(ends, digits, is_change=is_change)
    return bare if bare == NO_INTERVAL else f"95 %: {bare}"


def change_ends(ends: tuple[float, ...] | None) -> str:
    """Write the two ends of the interval of a change alone, for a column whose head says what they are.

    Examples
    --------
    >>> change_ends((-14.2, -9.1)), change_ends(None)
    ('−14.2 to −9.1', 'no interval yet')
    """
    return _ends(ends, 1, is_change=True)


def _ends(ends: tuple[float, ...] | None, digits: int, *, is_change: bool) -> str:
    if ends is None or len(ends) != 2:
        return NO_INTERVAL
    return " to ".join(signed(end, digits, "") if is_change else number(end, digits) for end in ends)


def short(identifier: str | None, length: int = 8) -> str:
    """Shorten an identifier to what tells it apart.

    Examples
    --------
    >>> short("sha256:0123456789abcdef"), short("decode-3"), short(None)
    ('01234567', 'decode-3', '–')
    """
    if identifier is None:
        return NOTHING
    text = identifier.rpartition(":")[2]
    return text if len(text) <= length + 4 else text[:length]


def version_name(version_number: int | None) -> str:
    """Name a version."""
    return "none" if version_number is None else f"v{version_number}"


def words(name: str) -> str:
    """Write a name of code as words.

    Examples
    --------
    >>> words("fit_degradation")
    'fit degradation'
    """
    return name.replace("_", " ")
