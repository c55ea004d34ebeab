"""The elements that lie at a point of a tile: its indices in an array, as expressions."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from compiler.analysis.indexing import Expr, var
from compiler.analysis.indexing_maps import Index
from compiler.backend.vector.arrays import VmemArray
from compiler.backend.vector.index_values import LANE, SUBLANE
from compiler.backend.vector.tile_loops import TilePoint, TileSpace


def point_index(array: VmemArray, space: TileSpace, point: TilePoint, part: int) -> Index:
    """The logical index of a tile's elements, for rows of phase `part`."""
    row = _row_at(point.row_tile, point.sublane, space.packing, part)
    inside: tuple[Expr, ...]
    if array.shape.rank == 0:
        return ()
    if array.replicated:
        inside = (*point.majors, row)
    elif space.is_vector:
        inside = (row * 128 + point.lane,)
    else:
        inside = (*point.majors, row, _col_at(point.col_tile, point.lane))
    return tuple([low + expr for low, expr in zip(array.origin, inside, strict=True)])


@lru_cache(maxsize=4096)
def _row_at(row_tile: Expr, sublane: Expr, packing: int, part: int) -> Expr:
    return row_tile * (8 * packing) + sublane * packing + part


@lru_cache(maxsize=4096)
def _col_at(col_tile: Expr, lane: Expr) -> Expr:
    return col_tile * 128 + lane


def full_tile(point: TilePoint) -> TilePoint:
    """The point with all sublanes and lanes, those that do not matter included."""
    return replace(point, sublane=var(SUBLANE), lane=var(LANE))
