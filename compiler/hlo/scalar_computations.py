"""Computations of scalars that frontends and passes hand to reductions and sorts."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.hlo.builder import HloBuilder
from compiler.hlo.dtypes import DType
from compiler.hlo.ir import HloComputation, HloModule
from compiler.hlo.shape import ArrayShape


def position_reducer(
    module: HloModule, name: str, value: DType, place: DType, direction: str
) -> HloComputation:
    """(value, position) of the greater ("GT") or lesser ("LT") of two: NaN wins, of equals the first.

    It may be applied in any order. Of two NaN either is the value; the position is the lesser one.
    """
    b = HloBuilder(name, module)
    a, i = b.parameter(ArrayShape(value, ()), "a"), b.parameter(ArrayShape(place, ()), "i")
    c, j = b.parameter(ArrayShape(value, ()), "b"), b.parameter(ArrayShape(place, ()), "j")
    takes_first, is_tie = b.compare(a, c, direction), b.compare(a, c, "EQ")
    if value.is_float:
        is_nan = b.compare(a, a, "NE")
        takes_first = b.or_(takes_first, is_nan)
        is_tie = b.or_(is_tie, b.and_(is_nan, b.compare(c, c, "NE")))
    position = b.select(is_tie, b.minimum(i, j), b.select(takes_first, i, j))
    return b.build(b.tuple((b.select(takes_first, a, c), position)))


def key_order(
    module: HloModule, name: str, operands: Sequence[DType], direction: str
) -> HloComputation:
    """A comparator of a sort of such operands by the first one alone."""
    b = HloBuilder(name, module)
    pairs = [[b.parameter(ArrayShape(dtype, ())) for _ in range(2)] for dtype in operands]
    first, other = pairs[0]
    return b.build(b.compare(first, other, direction))
