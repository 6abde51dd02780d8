"""Lists, page by page."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")

DEFAULT_LIMIT = 100
MAX_LIMIT = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[Item]):
    """A part of a list; `next_cursor` asks for the part after it, None where this is the last."""

    items: tuple[Item, ...]
    next_cursor: str | None


def to_page(found: Sequence[Item], limit: int, cursor_of: Callable[[Item], str]) -> Page[Item]:
    """Cut a page off a list that was asked for with one item more than `limit`."""
    items = tuple(found[:limit])
    return Page(items=items, next_cursor=cursor_of(items[-1]) if len(found) > limit else None)
