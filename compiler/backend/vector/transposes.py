"""Loads whose rows run along the lanes and whose columns run down the sublanes: XLU transposes.

A 128x128 block of 32-bit elements is pushed into the transpose unit, eight of its lanes' rows a
time, and read back as 16 vregs: the ones that 16 (or 16/P row tiles times P phases) vregs of the
stage come from. What is pushed is loaded like any other vreg, with lane 8*j + s in the place of
sublane s, so rows, and which of the tiles across, may be any function of the lane. A lane permutation
before the push puts the columns into the order in which a packed stage wants them.

Whole tiles of a 16-bit type with consecutive rows along the lanes are pushed as they lie, two rows
in a word: one block then holds 256 rows, and a vreg of 128 of them is half of what is read back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from compiler.analysis.indexing import Expr, coefficient, const, substitute, var, variables
from compiler.backend.vector.addresses import tiled_address
from compiler.backend.vector.arrays import VmemArray
from compiler.backend.vector.index_values import (
    LANE,
    SUBLANE,
    IndexValues,
    positions,
    split_uniform,
)
from compiler.backend.vector.ops import Ops, value_class
from compiler.backend.vector.row_loads import RowLoader
from compiler.backend.vector.unpack import unpack
from compiler.hlo.dtypes import DType
from compiler.llo.ir import VReg
from tpu_sim.isa.geometry import SUBLANES, UNIT_DIM

LoadPhysical = Callable[[VmemArray, Expr, Expr, Expr], int]
"""Loads the element at (major, row, col) of an array."""


@dataclass(frozen=True)
class TransposedIndex:
    """Row `row` of `major`, functions of the lane, and column ``step*s + col``.

    The lane may also say in which of the column tiles, not where in it.
    """

    major: Expr
    row: Expr
    col: Expr
    step: int
    lanes: int


@dataclass(frozen=True)
class _Block:
    """A 128x128 block: its columns start at `col`. With `is_packed` its elements are words of two
    rows, and `row` is that of the first lane."""

    array: VmemArray
    major: Expr
    row: Expr
    col: Expr
    step: int
    is_packed: bool = False


def transposed_index(array: VmemArray, major: Expr, row: Expr, col: Expr) -> TransposedIndex | None:
    """The physical index as a transposed one; None when it is not."""
    if array.replicated or not array.shape.rank:
        return None
    if "s" in positions(major) | positions(row):
        return None
    sublanes = [v for v in variables(col) if v.name == "s"]
    if len(sublanes) != 1:
        return None
    step = coefficient(col, sublanes[0])
    if step not in (1, 2, 4, 8):
        return None
    rest = substitute(col, {sublanes[0]: const(0)})
    found = {v for e in (major, row, rest) for v in variables(e) if v.name == "l"}
    if not found:
        return None
    (lane,) = found
    lanes = lane.high + 1
    groups = range(-(-lanes // SUBLANES))
    if "l" in positions(rest) and any(positions(_of_group(rest, j) % UNIT_DIM) for j in groups):
        return None
    return TransposedIndex(major, row, rest, step, lanes)


def _of_group(expr: Expr, group: int) -> Expr:
    """`expr` with lane 8*group + s for the lane: the rows that one push takes."""
    lanes = [v for v in variables(expr) if v.name == "l"]
    place = var(SUBLANE) + SUBLANES * group
    return substitute(expr, dict.fromkeys(lanes, place))


class TransposeLoader:
    """Emits transposed loads; keeps the blocks of the current code block.

    A transpose unit holds one block; its vregs are read when they are wanted, or all at once when
    another block takes its place. Blocks go to the units in turn.
    """

    def __init__(self, ops: Ops, values: IndexValues, rows: RowLoader) -> None:
        self._ops = ops
        self._values = values
        self._rows = rows
        self._code: object = None
        self._active: list[_Block | None] = []
        self._last = -1
        self._read: dict[_Block, dict[int, VReg]] = {}

    def load(self, array: VmemArray, index: TransposedIndex, natural: LoadPhysical) -> int:
        """The elements at `index`; `natural` loads what is not whole tiles.

        The block starts at the column of which this vreg is a whole number of vregs to the right.
        """
        phase = index.col % UNIT_DIM
        offset = phase.constant if phase.is_constant else index.col.constant % UNIT_DIM
        group, part = offset // (SUBLANES * index.step), offset % index.step
        offset = group * SUBLANES * index.step + part
        if self._ops.builder.block is not self._code:
            self._code = self._ops.builder.block
            self._read.clear()
            self._active = [None] * self._ops.builder.chip.transpose_units
        block = _Block(array, index.major, index.row, index.col - offset, index.step)
        half = self._packed_half(block)
        if half >= 0:
            first = split_uniform(block.row)[1] - half * UNIT_DIM
            block = replace(block, row=first, is_packed=True)
        if block not in self._read:
            self._last = (self._last + 1) % len(self._active)
            self._finish(self._last)
            self._push(block, index.lanes, natural)
            self._read[block] = {}
            self._active[self._last] = block
        value = self._vreg(block, group * index.step + part)
        if half >= 0:
            return self._half_of_rows(value, half, array.shape.dtype)
        is_mask = value_class(array.shape.dtype) == "m"
        return self._ops.integer_to_mask(value) if is_mask else value

    def _vreg(self, block: _Block, number: int) -> VReg:
        found = self._read[block]
        if number not in found:
            unit = self._active.index(block)
            value = self._ops.emit("vxpose.read", unit, number)
            found[number] = self._permute(value, self._lane_order(block))
        return found[number]

    def _finish(self, unit: int) -> None:
        """Read what is left of a unit's block."""
        block = self._active[unit]
        if block is not None:
            for number in range(UNIT_DIM // SUBLANES):
                self._vreg(block, number)

    def _packed_half(self, block: _Block) -> int:
        """Which half of a block of 256 packed rows this block is; -1 if it cannot be had so."""
        if block.array.shape.dtype.name != "bf16" or not self._is_aligned(block):
            return -1
        place = split_uniform(block.row)[1] % (2 * UNIT_DIM)
        return (
            place.constant // UNIT_DIM
            if place.is_constant and place.constant % UNIT_DIM == 0
            else -1
        )

    def _half_of_rows(self, words: VReg, half: int, dtype: DType) -> VReg:
        """Lane l of the result: row 128*half + l of the 256 that lie in pairs in the lanes."""
        ops, lane = self._ops, var(LANE)
        place = self._values.vector(lane // 2 + half * (UNIT_DIM // 2))
        word = ops.emit("vperm.lane", words, place)
        return unpack(ops, self._values, word, lane % 2, dtype)

    def _is_aligned(self, block: _Block) -> bool:
        """Whether the block is made of whole tiles with consecutive rows along the lanes."""
        varying, start = split_uniform(block.row)
        phases = (start % (SUBLANES * block.array.packing), block.col % UNIT_DIM)
        is_row = str(varying) == "l" and not positions(block.major) and not positions(block.col)
        return is_row and all(p.is_constant and not p.constant for p in phases)

    def _lane_order(self, block: _Block) -> Expr | None:
        if block.is_packed or not self._is_aligned(block):
            return None
        return _row_order(block.array.packing)

    def _push(self, block: _Block, lanes: int, natural: LoadPhysical) -> None:
        order = _column_order(block.step)
        if block.is_packed or self._is_aligned(block):
            pushes = self._tiles(block)
        else:
            pushes = self._rows_of(block, lanes, natural)
        for number, value in pushes:
            self._ops.emit("vxpose.push", self._last, self._permute(value, order), number)
        self._ops.emit("vxpose.swap", self._last)

    def _rows_of(self, block: _Block, lanes: int, natural: LoadPhysical) -> list[tuple[int, VReg]]:
        """The rows of eight lanes at a time, whatever they are."""
        is_mask = value_class(block.array.shape.dtype) == "m"
        pushes: list[tuple[int, VReg]] = []
        for group in range(-(-lanes // SUBLANES)):
            major, row, col = (_of_group(e, group) for e in (block.major, block.row, block.col))
            value = natural(block.array, major, row, col + var(LANE))
            pushes.append((group, self._ops.mask_to_integer(value) if is_mask else value))
        return pushes

    def _tiles(self, block: _Block) -> list[tuple[int, VReg]]:
        """Whole tiles: words of packed rows, or one part of them after the other."""
        array = block.array
        parts = 1 if block.is_packed else array.packing
        height = SUBLANES * array.packing
        first = split_uniform(block.row)[1] // height
        pushes: list[tuple[int, VReg]] = []
        for number in range(UNIT_DIM // (SUBLANES * parts)):
            row_tile = first + number
            if row_tile.low >= array.tiles_down:
                break
            address = tiled_address(array, block.major, row_tile * height, block.col)
            inside = self._values.clamped(address.word_row, array.word_rows - SUBLANES)
            word = self._rows.strided(array, inside, 1)
            if block.is_packed:
                pushes.append((number, word))
                continue
            for part in range(parts):
                value = unpack(self._ops, self._values, word, const(part), array.shape.dtype)
                if value_class(array.shape.dtype) == "m":
                    value = self._ops.mask_to_integer(value)
                pushes.append((number * parts + part, value))
        return pushes

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
