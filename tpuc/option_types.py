"""What the values of the command line's options are: files, folders, numbers, counts of rows."""

from __future__ import annotations

import math
from typing import Any

import click


class NamedPath(click.Path):
    """A path that has a name: an empty one is a variable of a script that is not set."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path; a usage error for an empty one."""
        if value == "":
            self.fail("the name is empty", param, ctx)
        return super().convert(value, param, ctx)


class Number(click.FloatRange):
    """A number within bounds."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; a usage error for what is none, or out of bounds."""
        try:
            float(value)
        except ValueError:
            self.fail(f"{value!r}: want a number", param, ctx)
        return super().convert(value, param, ctx)


class WholeNumber(click.IntRange):
    """A whole number within bounds."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; a usage error for what is none, or out of bounds."""
        try:
            int(value)
        except ValueError:
            self.fail(f"{value!r}: want a whole number", param, ctx)
        return super().convert(value, param, ctx)


FILE, FOLDER = NamedPath(dir_okay=False, readable=False), NamedPath(file_okay=False, readable=False)
"""What cannot be read is no wrong command line: who reads it says so."""


def number(context: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    """Refuse what is no number: click's ranges let it pass."""
    if value is not None and math.isnan(value):
        raise click.BadParameter("nan is no number")
    return value


def top(context: click.Context, parameter: click.Parameter, text: str) -> int | None:
    """A number of rows, or all."""
    if text == "all":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise click.BadParameter(f"{text!r}: want a number from 1 on, or all")
    return int(text)
