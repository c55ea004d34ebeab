"""Stores: vregs of a stage's tile into a VMEM array.

A stage's tile is 8*P rows (P: the largest packing in the stage), computed as P vregs whose sublane
s is row P*s + q. An array of packing P takes them in one packed vreg; one of a smaller packing p
takes P/p vregs, stored with a sublane stride or put into row order first.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.analysis.indexing import Expr
from compiler.analysis.tiled_layout import next_power_of_two
from compiler.backend.vector.arrays import VmemArray
from compiler.backend.vector.index_values import IndexValues, split_uniform
from compiler.backend.vector.ops import Ops
from compiler.backend.vector.unpack import pack
from compiler.diagnostics import CompileError
from compiler.llo.ir import VReg
from tpu_sim.isa.geometry import SUBLANES


class Storer:
    """Emits stores into the builder behind `ops`."""

    def __init__(self, ops: Ops, values: IndexValues) -> None:
        self._ops = ops
        self._values = values

    def store(
        self, array: VmemArray, major: Expr, row_tile: Expr, col_tile: Expr, parts: Sequence[int]
    ) -> None:
        """Store the stage's tile (`row_tile` in units of 8*P rows) from its P value registers.

        `major` is linear over `array.major_pitch`.

        Raises CompileError when P values are no whole words of the array.
        """
        ratio, rest = divmod(len(parts), array.packing)
        if rest:
            raise CompileError(
                f"internal: {len(parts)} rows of a stage's tile are stored to {array.shape}, which "
                f"packs {array.packing} in a word"
            )
        # rows P*s + q with q = p*number + part: the array's word row (P/p)*s + number
        words = [
            pack(self._ops, parts[n * array.packing : (n + 1) * array.packing], array.shape.dtype)
            for n in range(ratio)
        ]
        top = row_tile * ratio
        first = (major * array.row_pitch + top) * array.col_pitch + col_tile
        if array.col_pitch == 1 and top.range()[1] + ratio <= array.row_tiles:
            for number, word in enumerate(words):
                self._put(array, first * 8 + number, ratio, word)
            return
        for tile in range(ratio):
            if top.range()[0] + tile < array.row_tiles:
                word = self._natural_rows(words, tile)
                self._put(array, (first + tile * array.col_pitch) * 8, 1, word)

    def store_across(
        self, array: VmemArray, major: Expr, word: Expr, col_tile: Expr, parts: Sequence[int]
    ) -> None:
        """Store a row of words of eight tiles: `major` or `col_tile` steps along the sublanes.

        `word` counts rows of as many as `parts`, and is known. The last one goes to the padding of the
        array's own tiles as well, which a transfer takes with them.
        """
        ratio = len(parts) // array.packing
        filled = -(-array.rows // array.packing)
        tile = (major * array.row_pitch * array.col_pitch + col_tile) * SUBLANES
        stepping, start = split_uniform(tile)
        ((_, stride),) = stepping.terms
        first = word.constant * ratio
        for number in range(ratio):
            packed = parts[number * array.packing : (number + 1) * array.packing]
            value = pack(self._ops, packed, array.shape.dtype)
            row = first + number
            last = next_power_of_two(filled) if row == filled - 1 else min(row + 1, filled)
            for at in range(row, last):
                self._put(array, start + at, stride, value)

    def store_word(
        self, array: VmemArray, major: Expr, row_tile: Expr, col_tile: Expr, word: VReg
    ) -> None:
        """Store a whole packed tile of the array."""
        place = (major * array.row_pitch + row_tile) * array.col_pitch + col_tile
        self._put(array, place * 8, 1, word)

    def _natural_rows(self, words: Sequence[VReg], tile: int) -> VReg:
        """Tile `tile` of rows in their order: sublane j is row 8*tile + j = ratio*s + number."""
        ops = self._ops
        ratio = len(words)
        if ratio == 1:
            return words[0]
        place = ops.iadd_constant(ops.sublane(), 8 * tile)
        source = ops.emit("vshri", place, ratio.bit_length() - 1)
        phase = ops.emit("vandi", place, ratio - 1)
        result = -1
        for number, word in enumerate(words):
            moved = ops.emit("vperm.slane", word, source)
            if result < 0:
                result = moved
            else:
                is_here = ops.compare_integer("eq", phase, number)
                result = ops.select(is_here, moved, result)
        return result

    def _put(self, array: VmemArray, row: Expr, stride: int, word: VReg) -> None:
        base, offset = self._values.row_address(array.base, row)
        self._ops.emit("vst", array.window, base, offset, stride, word)
