"""Columns of an array that stays in VMEM, copied to a block of units and back.

In the array a column tile's row tiles are as far apart as it is wide; in a block, a unit after the
other, they follow each other.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.backend.vector.arrays import VmemArray
from compiler.backend.vector.ops import Ops
from compiler.llo.builder import LloBuilder
from compiler.llo.ir import SReg
from tpu_sim.isa.geometry import SUBLANES


@dataclass(frozen=True)
class ColumnPart:
    """One array of a block: a window and the sreg with its first row in it."""

    window: int
    base: SReg


_TOGETHER = 8
"""Tiles copied in one turn of the innermost loop: loads and stores of several overlap."""


def copy_columns(
    builder: LloBuilder, array: VmemArray, block: ColumnPart, *, to_array: bool
) -> None:
    """Copy the f32[a, n, c] that a step has of an array, tile by tile."""
    b = builder
    (majors,) = array.majors
    with (
        b.loop(majors, "copy", parallel=True) as major,
        b.loop(array.col_tiles, "copy", parallel=True) as column,
    ):
        tile = b.sadd(b.smuli(major, array.row_pitch * array.col_pitch), column)
        unit = b.sadd(b.smuli(major, array.col_tiles), column)
        first = b.sadd(array.base, b.smuli(tile, SUBLANES))
        into = b.sadd(block.base, b.smuli(unit, array.row_tiles * SUBLANES))
        whole, rest = divmod(array.row_tiles, _TOGETHER)
        with b.loop(whole, "copy", parallel=True) as group:
            row = b.smuli(group, _TOGETHER)
            _copy(b, array, block, (first, into), row, _TOGETHER, to_array=to_array)
        if rest:
            row = b.sconst(whole * _TOGETHER)
            _copy(b, array, block, (first, into), row, rest, to_array=to_array)
    b.new_block()


def _copy(
    b: LloBuilder,
    array: VmemArray,
    block: ColumnPart,
    places: tuple[SReg, SReg],
    row: SReg,
    count: int,
    *,
    to_array: bool,
) -> None:
    """`count` row tiles from number `row` on; `places` are the first tiles in array and block."""
    ops, step = Ops(b), SUBLANES * array.col_pitch
    outer = array.window, b.sadd(places[0], b.smuli(row, step)), step
    inner = block.window, b.sadd(places[1], b.smuli(row, SUBLANES)), SUBLANES
    source, target = (inner, outer) if to_array else (outer, inner)
    for tile in range(count):
        word = ops.emit("vld", source[0], source[1], tile * source[2], 1)
        ops.emit("vst", target[0], target[1], tile * target[2], 1, word)
