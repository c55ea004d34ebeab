"""Where an element of a `VmemArray` lies: word row of the buffer, lane, and part of the word."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from compiler.analysis.indexing import Expr, const, linearize
from compiler.analysis.indexing_maps import Index
from compiler.backend.vector.arrays import VmemArray
from tpu_sim.isa.geometry import LANES


class Address(NamedTuple):
    """Element address over SUBLANE, LANE and uniform variables.

    `word_row` counts rows of 512 bytes from the buffer's start; `lane` is 0..127; `part` is
    0..packing-1, lowest bits first. `first_col_row` is the word row in column tile 0, and `col` the
    element's column in the physical view. `major` and `word` (row div packing) are where it stands
    in the tile grid.
    """

    word_row: Expr
    lane: Expr
    part: Expr
    first_col_row: Expr
    col: Expr
    major: Expr
    word: Expr


def physical_index(array: VmemArray, index: Index) -> tuple[Expr, Expr, Expr]:
    """(linear major, row, col) of a logical index within the held box."""
    inside = [expr - low for expr, low in zip(index, array.origin, strict=True)]
    zero = const(0)
    if array.shape.rank == 0:
        return zero, zero, zero
    if array.replicated:
        return linearize(inside[:-1], array.majors), inside[-1], zero
    if array.shape.rank == 1:
        return zero, inside[0] // LANES, inside[0] % LANES
    return linearize(inside[:-2], array.major_pitch), inside[-2], inside[-1]


def tiled_address(array: VmemArray, major: Expr, row: Expr, col: Expr) -> Address:
    """The address of a physical position."""
    # tiles that differ by whole tiles differ in constants: the rest is worked out once
    height = 8 * array.packing
    down, across = row.constant // height, col.constant // LANES
    grid = (array.packing, array.row_pitch, array.col_pitch, array.replicated)
    at = _address(*grid, major, row - down * height, col - across * LANES)
    if not down and not across:
        return at
    moved = down * (8 * array.col_pitch)
    beside = across * 8 if array.col_pitch > 1 else 0
    return Address(
        at.word_row + (moved + beside),
        at.lane,
        at.part,
        at.first_col_row + moved,
        col,
        major,
        at.word + down * 8,
    )


@lru_cache(maxsize=8192)
def _address(
    packing: int,
    row_tiles: int,
    col_tiles: int,
    replicated: bool,
    major: Expr,
    row: Expr,
    col: Expr,
) -> Address:
    word = row // packing
    tile = (major * row_tiles + word // 8) * col_tiles
    first = tile * 8 + word % 8
    lane = const(0) if replicated else col % LANES
    word_row = first if col_tiles == 1 else first + col // LANES * 8
    return Address(word_row, lane, row % packing, first, col, major, word)
