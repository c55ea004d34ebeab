"""Loads: one vreg of a VMEM array at any index map, by the cheapest pattern that fits.

An address is (word row, lane). When both are a uniform part plus values known now,

    word row = base + f(s) + g(l)       lane = h(s, l)

positions with equal g form a group. A group is fetched by strided loads, one per run of sublanes over
which f is affine; its lanes are put in place by a rotation, a broadcast or a permutation; masks
join runs and groups. So a tile, a row offset, a strided slice, a broadcast row or column, a lane
offset, a reverse and a reshape that splits rows or lanes are all one mechanism. Where a reshape
makes several rows of one, g depends on the sublane too: f is then what lane 0 reads. Of columns whose
begin is known only at run time the tiles they may lie in are joined; rows known only then are loaded one by
one. What is left is the indexed load, a word a lane.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from compiler.analysis.indexing import Expr, Var, const, multiple, substitute, variables
from compiler.analysis.indexing_maps import Index
from compiler.backend.vector.addresses import Address, physical_index, tiled_address
from compiler.backend.vector.arrays import VmemArray
from compiler.backend.vector.dynamic_rows import DynamicRows
from compiler.backend.vector.index_values import (
    IndexValues,
    is_position,
    is_static,
    is_uniform,
    positions,
    split_uniform,
    static_values,
)
from compiler.backend.vector.ops import Ops
from compiler.backend.vector.row_loads import RowLoader, sublane_count
from compiler.backend.vector.transposes import TransposeLoader, transposed_index
from compiler.backend.vector.unpack import unpack
from compiler.llo.ir import VReg
from tpu_sim.isa.geometry import LANES

_MOST_TILES = 4
"""Column tiles joined: each takes a load, a permutation and a selection, an indexed load its slot for
128 cycles (assumed)."""


class Loader:
    """Emits loads into the builder behind `ops`.

    `can_transpose`: the code block computes enough vregs of a 128x128 block to pay its transpose.
    """

    def __init__(self, ops: Ops, values: IndexValues) -> None:
        self._ops = ops
        self._values = values
        self._rows = RowLoader(ops, values)
        self._dynamic = DynamicRows(ops, values, self._rows)
        self._transposes = TransposeLoader(ops, values, self._rows)
        self.can_transpose = False

    def load(self, array: VmemArray, index: Index) -> int:
        """The elements at `index`: f32 or s32 lanes, or a mask for pred."""
        return self._load_physical(array, *physical_index(array, self._inside(array, index)))

    def _inside(self, array: VmemArray, index: Index) -> Index:
        """Indices that are the same for all lanes, brought inside the box.

        Where they lie outside, in a pad's border or a slice not taken, the value does not matter.
        """
        found: list[Expr] = []
        for expr, low, size in zip(index, array.origin, array.extent, strict=True):
            first, last = (expr - low).range()
            if (first < 0 or last >= size) and size > 0 and is_uniform(expr - low):
                expr = low + self._values.clamped(expr - low, size - 1)
            found.append(expr)
        return tuple(found)

    def _load_physical(self, array: VmemArray, major: Expr, row: Expr, col: Expr) -> int:
        is_full = array.is_dense and array.row_tiles * 8 * array.packing == array.rows
        if self.can_transpose and is_full:
            row, major = major * array.rows + row, const(0)  # rows go on from major to major
        transposed = transposed_index(array, major, row, col) if self.can_transpose else None
        if transposed is not None:
            return self._transposes.load(array, transposed, self._load_physical)
        address = tiled_address(array, major, row, col)
        word = self._words(array, address)
        return unpack(self._ops, self._values, word, address.part, array.shape.dtype)

    def _words(self, array: VmemArray, address: Address) -> VReg:
        varying, base = split_uniform(address.word_row)
        lane_varying, _ = split_uniform(address.lane)
        if is_static(varying) and is_static(lane_varying):
            groups = self._grouped(array, address, base, *_separate(varying))
            if groups is not None:
                return groups
        shifted = self._shifted_lanes(array, address)
        if shifted is not None:
            return shifted
        by_sublane = self._sublane_by_sublane(array, address)
        return by_sublane if by_sublane is not None else self._indexed(array, address)

    def _grouped(
        self, array: VmemArray, address: Address, base: Expr, down: Expr, across: Expr
    ) -> VReg | None:
        """Groups of lanes with the same rows; None when an indexed load costs less."""
        count, lanes = sublane_count(address.word_row), _lane_count(address)
        rows = rows_down(down, count)
        distinct = _distinct(across, count, lanes)
        # beside its loads a group takes a rotation and its result, a mask and a selection
        cost = len(distinct) * (4 + self._rows.cost(array, base, rows))
        if cost > self._ops.builder.chip.load_indexed_cycles:  # of which a cycle issues about three
            return None
        result = -1
        for offset in distinct:
            piece = self._rows.load(array, base + offset, rows)
            members = across if len(distinct) > 1 else None
            piece = self._place(piece, address, count, lanes, offset, members)
            if result < 0:
                result = piece
            else:
                mask = self._values.within(across, offset, offset)
                result = self._ops.select(mask, piece, result)
        return result

    def _place(
        self,
        word: VReg,
        address: Address,
        count: int,
        lanes: int,
        offset: int,
        across: Expr | None,
    ) -> VReg:
        """Move lanes of a loaded vreg to where they are wanted in the lanes of `offset`'s group."""
        varying, base = split_uniform(address.lane)
        same = _common_lane(varying, count)
        if same is not None:
            return self._broadcast_lane(word, base + same)
        shift = _common_shift(varying, count, lanes, offset, across)
        if shift is not None:
            return self._rotate(word, -(base + shift))
        return self._ops.emit("vperm.lane", word, self._values.vector(address.lane))

    def _broadcast_lane(self, word: VReg, lane: Expr) -> VReg:
        if lane.is_constant:
            return self._ops.emit("vbcast.lane", word, 0, lane.constant % 128)
        return self._ops.emit("vbcast.lane", word, self._values.scalar(lane), 0)

    def _rotate(self, word: VReg, amount: Expr) -> VReg:
        """y[l] = x[l - amount]."""
        if amount.is_constant:
            by = amount.constant % 128
            return self._ops.emit("vrot.lane", word, 0, by) if by else word
        return self._ops.emit("vrot.lane", word, self._values.scalar(amount % 128), 0)

    def _shifted_lanes(self, array: VmemArray, address: Address) -> VReg | None:
        """Columns that are a run-time start and known steps to the right of it, joined at the seams.

        As many column tiles as they may lie in are loaded: two, where lanes follow each other.
        """
        varying, start = split_uniform(address.col)
        if positions(varying) != {"l"} or not is_static(varying):
            return None
        if array.shape.rank < 2 or "l" in positions(address.first_col_row):
            return None
        low, high = _lane_limits(varying, _lane_count(address))
        start, varying = start + low, varying - low
        count = min(_seams(start, high - low) + 1, array.col_tiles)
        if count > _MOST_TILES:
            return None
        values = self._values
        shift = values.bind("shift", 0, LANES - 1, values.scalar(start % LANES))
        tile = start // LANES
        first = values.bind("tile", *tile.range(), values.scalar(tile))
        pieces = []
        for number in range(count):
            tile = values.clamped(first + number, array.col_tiles - 1)
            row = address.first_col_row + (tile * 8 if array.col_tiles > 1 else 0)
            piece = self._rows_only(array, address, row)
            pieces.append(self._moved(piece, shift, varying))
        result = pieces[0]
        for number, piece in enumerate(pieces[1:], 1):
            is_before = values.within(shift + varying, 0, LANES * number - 1)
            result = self._ops.select(is_before, result, piece)
        return result

    def _moved(self, word: VReg, shift: Expr, varying: Expr) -> VReg:
        """y[l] = x[(shift + varying) mod 128]."""
        if str(varying) == "l":
            return self._rotate(word, -shift)
        return self._ops.emit("vperm.lane", word, self._values.vector(shift + varying))

    def _rows_only(self, array: VmemArray, address: Address, word_row: Expr) -> VReg:
        """A load whose rows do not depend on the lane, lanes left as they lie.

        `word_row` is the address's, in a column tile that is the same for all lanes.
        """
        varying, base = split_uniform(word_row)
        if is_static(varying):
            return self._rows.load(array, base, rows_down(varying, sublane_count(word_row)))
        col_rows = word_row - address.first_col_row
        pieces = self._dynamic.load(array, address.major, address.word, col_rows)
        if pieces is not None:
            return pieces
        return self._rows.by_sublane(array, _rows_of(word_row))

    def _sublane_by_sublane(self, array: VmemArray, address: Address) -> VReg | None:
        """Rows that differ in a way known only at run time, lanes in place or one lane for all."""
        if "l" in positions(address.word_row):
            return None
        varying, base = split_uniform(address.lane)
        word = self._rows_only(array, address, address.word_row)
        if varying.is_constant:
            return self._broadcast_lane(word, base)
        if not base.is_constant or str(varying) != "l":
            return self._ops.emit("vperm.lane", word, self._values.vector(address.lane))
        return self._rotate(word, -base)

    def _indexed(self, array: VmemArray, address: Address) -> VReg:
        """Any address: one word a lane, kept inside the buffer where the element may not exist."""
        ops = self._ops
        word = address.word_row * 128 + address.lane
        vector = self._values.vector(word)
        last = array.word_rows * 128 - 1
        low, high = word.range()
        if low < 0 or not _is_full(word):
            vector = ops.emit("vmax.s32", vector, ops.integer(0))
        if high > last or not _is_full(word):
            vector = ops.emit("vmin.s32", vector, ops.integer(last))
        return ops.emit("vld.idx", array.window, array.base, vector)


@lru_cache(maxsize=4096)
def rows_down(varying: Expr, count: int) -> tuple[int, ...]:
    """The values of a static expression in lane 0 of the first `count` sublanes."""
    return tuple(static_values(varying)[:count, 0].tolist())


@lru_cache(maxsize=4096)
def _distinct(across: Expr, count: int, lanes: int) -> tuple[int, ...]:
    """The values of a static expression in the first lanes of the first `count` sublanes, in order."""
    return tuple(np.unique(static_values(across)[:count, :lanes]).tolist())


@lru_cache(maxsize=4096)
def _common_lane(varying: Expr, count: int) -> int | None:
    """The lane that all lanes read, in each of the first `count` sublanes the same one."""
    if varying.is_constant:
        return 0
    if "l" in positions(varying):
        return None
    lanes = static_values(varying)[:count, 0]
    return int(lanes[0]) if (lanes == lanes[0]).all() else None


@lru_cache(maxsize=4096)
def _common_shift(
    varying: Expr, count: int, lanes: int, offset: int, across: Expr | None
) -> int | None:
    """How far to the right the positions of a group come from, if it is the same for all.

    `varying` is the lane each reads; the group is where `across` is `offset`, or all.
    """
    wanted = static_values(varying)[:count, :lanes]
    shift = (wanted - np.arange(lanes)[None, :]) % 128
    if across is not None:
        shift = shift[static_values(across)[:count, :lanes] == offset]
    first = int(shift.flat[0])
    return first if (shift == first).all() else None


@lru_cache(maxsize=4096)
def _lane_limits(varying: Expr, lanes: int) -> tuple[int, int]:
    """The least and the greatest value of a static expression over the lane, in the first `lanes`."""
    found = static_values(varying)[0, :lanes]
    return int(found.min()), int(found.max())


def _seams(start: Expr, steps: int) -> int:
    """How many seams between column tiles `start` .. ``start + steps`` may hold.

    Where a start lies in a tile is known up to a multiple of its step.
    """
    pitch = math.gcd(LANES, *(factor for _, factor in start.terms))
    last = LANES - pitch + start.constant % pitch
    return (last + steps) // LANES


@lru_cache(maxsize=4096)
def _separate(varying: Expr) -> tuple[Expr, Expr]:
    """A static expression as (part over s, the rest): the rest is over l alone if it can be."""
    down = across = const(0)
    for atom, factor in varying.terms:
        term = multiple(atom, factor)
        names = positions(term)
        if names == {"s"}:
            down = down + term
        elif names == {"l"}:
            across = across + term
        else:
            first = substitute(term, {v: const(0) for v in variables(term) if v.name == "l"})
            down, across = down + first, across + term - first
    return down, across


def _lane_count(address: Address) -> int:
    return max(_lanes_of(variables(address.word_row)), _lanes_of(variables(address.lane)))


@lru_cache(maxsize=4096)
def _lanes_of(found: frozenset[Var]) -> int:
    return max((v.high + 1 for v in found if v.name == "l"), default=1)


def _rows_of(word_row: Expr) -> list[Expr]:
    """The word row of each sublane."""
    at = [v for v in variables(word_row) if is_position(v)]
    return [substitute(word_row, {v: const(k) for v in at}) for k in range(sublane_count(word_row))]


def _is_full(expr: Expr) -> bool:
    """Whether the ranges of sublane and lane in `expr` are those of a whole vreg."""
    highs = {v.name: v.high for v in variables(expr) if is_position(v)}
    return highs.get("s", 7) == 7 and highs.get("l", 127) == 127
