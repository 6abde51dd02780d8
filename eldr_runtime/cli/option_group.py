"""Options that belong together and reach a command as one value."""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

R = TypeVar("R")
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def option_group(
    argument: str, options: Sequence[Decorator], build: Callable[..., object]
) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Return a decorator that adds the options, and gives a command what `build` makes of them.

    Parameters
    ----------
    argument
        Name of the command's argument that takes it.
    options
        In the order in which help lists them.
    build
        Called with those options that its parameters name; they go no further.

    Examples
    --------
    >>> twice = option_group("both", [], lambda left, right: left + right)
    >>> twice(lambda both, other: (both, other))(left=1, right=2, other=3)
    (3, 3)
    """
    names = frozenset(inspect.signature(build).parameters)

    def decorate(command: Callable[..., R]) -> Callable[..., R]:
        @functools.wraps(command)
        def with_group(**given: object) -> R:
            own = {name: value for name, value in given.items() if name in names}
            rest = {name: value for name, value in given.items() if name not in names}
            return command(**{argument: build(**own)}, **rest)

        decorated: Callable[..., R] = with_group
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate
