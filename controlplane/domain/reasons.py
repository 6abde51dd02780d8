"""Every change carries a reason."""

from eldr_runtime.errors import InvalidValue

MAX_REASON_LENGTH = 1000


def check_reason(reason: str) -> str:
    """Refuse an empty reason or an essay."""
    text = reason.strip()
    if not 1 <= len(text) <= MAX_REASON_LENGTH:
        raise InvalidValue(
            field="reason", value=reason[:80], limit=f"a text of 1 to {MAX_REASON_LENGTH} characters"
        )
    return text
