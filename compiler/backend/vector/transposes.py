"""Loads whose rows run along the lanes and whose columns run down the sublanes: XLU transposes.

A 128x128 block of 32-bit elements is pushed into the transpose unit row tile by row tile, and read
back as 16 vregs, which serve the 16 (or 16/P row tiles times P phases) vregs of the stage that come
from this block. Packed elements are unpacked first; lane permutations put rows and columns into the
order in which packed tiles hold them.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.analysis.indexing import Expr, coefficient, const, var, variables
from compiler.backend.vector.addresses import tiled_address
from compiler.backend.vector.arrays import VmemArray
from compiler.backend.vector.index_values import (
    LANE,
    IndexValues,
    positions,
    split_uniform,
)
from compiler.backend.vector.ops import Ops, value_class
from compiler.backend.vector.row_loads import RowLoader
from compiler.backend.vector.unpack import unpack
from compiler.llo.ir import VReg

BLOCK = 128


@dataclass(frozen=True)
class TransposedIndex:
    """Row ``l + row`` and column ``step*s + col`` of one major; the three fields are uniform."""

    major: Expr
    row: Expr
    col: Expr
    step: int


def transposed_index(array: VmemArray, major: Expr, row: Expr, col: Expr) -> TransposedIndex | None:
    """The physical index as a transposed one; None when it is not."""
    if array.replicated or array.shape.rank < 2 or positions(major):
        return None
    if positions(row) != {"l"} or positions(col) != {"s"}:
        return None
    (lane,) = (v for v in variables(row) if v.name == "l")
    (sublane,) = (v for v in variables(col) if v.name == "s")
    step = coefficient(col, sublane)
    if coefficient(row, lane) != 1 or step not in (1, 2, 4, 8):
        return None
    return TransposedIndex(major, split_uniform(row)[1], split_uniform(col)[1], step)


class TransposeLoader:
    """Emits transposed loads; keeps the blocks of the current code block."""

    def __init__(self, ops: Ops, values: IndexValues, rows: RowLoader) -> None:
        self._ops = ops
        self._values = values
        self._rows = rows
        self._block: object = None
        self._read: dict[tuple[object, ...], list[int]] = {}

    def load(self, array: VmemArray, index: TransposedIndex) -> int | None:
        """The elements, or None where the block's place in the array is not known well enough."""
        offset = index.col % BLOCK
        height = 8 * array.packing
        aligned = index.row % height
        if not offset.is_constant or not aligned.is_constant or aligned.constant:
            return None
        group, phase = divmod(offset.constant, 8 * index.step)
        if phase >= index.step:
            return None
        if self._ops.builder.block is not self._block:
            self._block = self._ops.builder.block
            self._read.clear()
        tile = index.col // BLOCK
        key = (array, index.major, index.row, tile, index.step)
        vregs = self._read.get(key)
        if vregs is None:
            vregs = self._read[key] = self._transpose(array, index, tile)
        value = vregs[group * index.step + phase]
        is_mask = value_class(array.shape.dtype) == "m"
        return self._ops.integer_to_mask(value) if is_mask else value

    def _transpose(self, array: VmemArray, index: TransposedIndex, tile: Expr) -> list[int]:
        """All vregs of one block, in the order (row tile of the stage, phase)."""
        ops = self._ops
        col_tile = self._values.clamped(tile, 0, array.col_tiles - 1)
        height = 8 * array.packing
        first = index.row // height
        for number in range(BLOCK // height):
            row_tile = first + number
            if row_tile.low >= array.row_tiles:
                break
            row_tile = self._values.clamped(row_tile, 0, array.row_tiles - 1)
            for part, value in enumerate(self._tile(array, index.major, row_tile, col_tile)):
                ordered = self._permute(value, _column_order(index.step))
                ops.emit("vxpose.push", ordered, number * array.packing + part)
        ops.emit("vxpose.swap")
        left = array.cols - BLOCK * tile.low
        count = -(-min(BLOCK, left) // (8 * index.step)) * index.step
        order = _row_order(array.packing)
        return [self._permute(ops.emit("vxpose.read", k), order) for k in range(count)]

    def _tile(self, array: VmemArray, major: Expr, row_tile: Expr, col_tile: Expr) -> list[VReg]:
        """The parts of one vreg tile, as 32-bit lanes."""
        address = tiled_address(array, major, row_tile * (8 * array.packing), col_tile * 128)
        inside = self._values.clamped(address.word_row, 0, array.word_rows - 8)
        word = self._rows.strided(array, inside, 1)
        dtype = array.shape.dtype
        parts = [
            unpack(self._ops, self._values, word, const(part), dtype)
            for part in range(array.packing)
        ]
        if value_class(dtype) == "m":
            return [self._ops.mask_to_integer(part) for part in parts]
        return parts

    def _permute(self, value: VReg, order: Expr | None) -> VReg:
        if order is None:
            return value
        return self._ops.emit("vperm.lane", value, self._values.vector(order))


def _column_order(step: int) -> Expr | None:
    """Which column goes to lane l, so that sublane s of vreg (tile, phase) is step*s + phase."""
    if step == 1:
        return None
    lane = var(LANE)
    return lane // (8 * step) * (8 * step) + lane % 8 * step + lane // 8 % step


def _row_order(packing: int) -> Expr | None:
    """In which lane row l of the block arrives: parts of a packed tile were pushed one by one."""
    if packing == 1:
        return None
    lane = var(LANE)
    height = 8 * packing
    return lane // height * height + lane % packing * 8 + lane % height // packing

