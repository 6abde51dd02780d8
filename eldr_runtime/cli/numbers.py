"""Numbers as options take them: click's own types let NaN and infinity through every range."""

import math

import click


class _Finite(click.ParamType[float]):
    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{number} is not a finite number.", param, ctx)
        return number


class Number(_Finite, click.types.FloatParamType):
    """A finite number; its limits are checked by whoever takes it."""


class NumberRange(_Finite, click.FloatRange):
    """A finite number in a range."""
