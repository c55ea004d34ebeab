"""The epilogue as a pass of its own, for sums that are not known to be finished when popped."""

from __future__ import annotations

from dataclasses import replace

from compiler.backend.dot.results import Affine, Epilogue, ResultMemory, ResultTile
from compiler.backend.dot.tiles import TileGrid
from compiler.llo.builder import LloBuilder
from compiler.llo.ir import SReg

_BODY_OPS = 320
"""Operations in a body of the loop over column tiles: long enough to fill slots, and soon scheduled
(assumed)."""


def emit_epilogue_pass(b: LloBuilder, out: TileGrid, epilogue: Epilogue, batches: int) -> None:
    """Give every tile of the `batches` matrices of `out` to the epilogue."""
    with b.loop(batches, "epilogue-batches") as batch:
        base = b.sadd(out.base, b.smuli(batch, out.matrix_rows))
        number = Affine(batch, 1, 0, batches)
        _EpiloguePass(b, replace(out, base=base), epilogue, number).emit()


class _EpiloguePass:
    def __init__(self, b: LloBuilder, out: TileGrid, epilogue: Epilogue, batch: Affine) -> None:
        self.b = b
        self.out = out
        self.batch = batch
        self.epilogue = epilogue
        self.memory = ResultMemory(b, out)
        self.unroll = max(1, min(out.col_tiles, _BODY_OPS // (2 * epilogue.ops + 8)))

    def emit(self) -> None:
        """Loop over whole pairs of row tiles, then a last single one."""
        pairs, rest = divmod(self.out.row_tiles, 2)
        with self.b.loop(pairs, "epilogue-rows", parallel=True) as index:
            self._row(Affine(index, 1, 0, pairs), True)
        if rest:
            self._row(Affine(0, 1, pairs), False)
        self.b.new_block()

    def _row(self, row_tile: Affine, has_lower: bool) -> None:
        b, out = self.b, self.out
        moved = b.smuli(row_tile.sreg, out.row(2, 0))
        pointer = b.saddi(b.sadd(out.base, moved), out.row(2 * row_tile.offset, 0))
        trips, rest = divmod(out.col_tiles, self.unroll)
        with b.loop(trips, "epilogue-columns", parallel=True) as index:
            at = b.sadd(pointer, b.smuli(index, out.row(0, self.unroll)))
            for col in range(self.unroll):
                self._tile(at, col, row_tile, Affine(index, self.unroll, col, trips), has_lower)
        b.new_block()
        for col in range(out.col_tiles - rest, out.col_tiles):
            self._tile(pointer, col, row_tile, Affine(0, 1, col), has_lower)

    def _tile(
        self, pointer: SReg, col: int, row_tile: Affine, col_tile: Affine, has_lower: bool
    ) -> None:
        even, odd = self.memory.load(pointer, self.out.row(0, col), has_lower)
        self.epilogue.emit(ResultTile(row_tile, col_tile, has_lower, self.batch), even, odd)
