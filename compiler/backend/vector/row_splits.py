"""Rows of a stage as several loops, where what it reads lies in more dimensions than it writes.

A stage over rows that a reshape has merged, ``row = (h * W + w) * B + b``, finds its operands by
divisions and remainders of the row. Loops over h, w and b instead make these the loops' variables:
the addresses become sums that are computed once per loop. That is worth it for a box whose rows
begin at a multiple of the divisors, as blocks of a grid do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from compiler.analysis.indexing import Expr, Quotient, Remainder, Var, linearize, ranged
from compiler.backend.vector.tile_loops import TilePoint, TileSpace

ROW = "row_split"


def row_variable(space: TileSpace) -> Expr:
    """A variable for the row tile, which `row_factors` then looks for."""
    return ranged(ROW, space.row_tiles)


def row_factors(space: TileSpace, indices: Iterable[Expr]) -> tuple[int, ...]:
    """How many row tiles each loop takes, outermost first; one factor means no split.

    `indices`: what the stage reads, with `row_variable` for its row tile.
    """
    is_whole = space.rows == space.row_tiles * 8 * space.packing
    if space.is_vector or not is_whole or space.row_tiles == 1:
        return (space.row_tiles,)
    sizes = sorted({size for index in indices for size in _periods(index)})
    factors: list[int] = []
    inner = 1
    for size in sizes:
        if space.row_tiles % size == 0 and size % inner == 0 and inner < size < space.row_tiles:
            factors.append(size // inner)
            inner = size
    return (space.row_tiles // inner, *reversed(factors))


def split_rows(
    space: TileSpace, factors: tuple[int, ...], body: Callable[[TilePoint], None]
) -> tuple[TileSpace, Callable[[TilePoint], None]]:
    """The space with all but the last factor as further majors, and the body for its points."""
    if len(factors) == 1:
        return space, body
    outer, inner = factors[:-1], factors[-1]
    count = len(space.majors)

    def at(point: TilePoint) -> None:
        row = linearize((*point.majors[count:], point.row_tile), factors)
        body(replace(point, majors=point.majors[:count], row_tile=row))

    rows = space.rows // math.prod(outer)
    assert rows == inner * 8 * space.packing
    return replace(space, majors=(*space.majors, *outer), rows=rows), at


def _periods(index: Expr) -> Iterator[int]:
    """Row tiles after which a quotient of the row steps or a remainder starts anew."""
    for atom, _ in index.terms:
        if isinstance(atom, Var):
            continue
        yield from _periods(atom.body)
        factor = _row_factor(atom)
        if factor and atom.divisor % factor == 0:
            yield atom.divisor // factor


def _row_factor(atom: Quotient | Remainder) -> int:
    """The factor of the row variable in an atom's body, 0 where it has none of its own."""
    for inner, factor in atom.body.terms:
        if isinstance(inner, Var) and inner.name == ROW:
            return factor
    return 0
