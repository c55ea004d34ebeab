"""Kernels as the compiler shapes them: a grid of steps with double-buffered windows, a loop of tiles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.support.random_programs import BlockBuilder
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.control_flow import Call, If, Loop
from tpu_sim.isa.program import (
    HBM,
    VMEM,
    Block,
    DmaDescriptor,
    DmaDim,
    Kernel,
    Node,
    Program,
    Window,
)

BLOCK_ROWS = 64
SLOT, NEXT, INDEX, TILE, ROW, TILE_ROW = 16, 12, 7, 20, 22, 21
"""Sregs: row of the current slot, the other slot, grid index, tile index, tile's rows in window, block."""

Emit = Callable[[BlockBuilder], None]


@dataclass(frozen=True)
class Grid:
    """A kernel that reads `steps` blocks and writes as many, from `target_row` of HBM on.

    With `piece_rows` a block is a column of a matrix in HBM: pieces of so many rows, one per block row.
    """

    chip: Chip
    steps: int
    target_row: int
    tile: Emit
    passes: int = 1
    piece_rows: int = 0

    def program(self, hbm_bytes: int) -> Program:
        """The kernel, called once."""
        windows = [Window("in", 0, 2 * BLOCK_ROWS), Window("out", 2 * BLOCK_ROWS, 2 * BLOCK_ROWS)]
        chunk, apart = self.piece_rows, self.steps * self.piece_rows
        count = BLOCK_ROWS // chunk if chunk else 1
        copies = [
            DmaDescriptor(HBM, VMEM, self._block_step, (DmaDim(count, apart, chunk),), 0),
            DmaDescriptor(VMEM, HBM, self._block_step, (DmaDim(count, chunk, apart),), 1),
        ]
        body: list[Node] = [self._first(), Loop(self.steps, INDEX, self._step()), self._last()]
        if self.passes > 1:
            body = [Loop(self.passes, 25, body)]
        kernel = Kernel("k", 0, windows, copies, body)
        return Program("v5e", {"k": kernel}, [Call("k", "k")], [], [], hbm_bytes, 1024)

    @property
    def _block_step(self) -> int:
        """Rows from one block to the next in HBM."""
        return self.piece_rows or BLOCK_ROWS

    def _first(self) -> Block:
        builder = BlockBuilder(self.chip)
        builder.emit("dma.start", 0, 0, 0, 0, 0, 0, 0)
        return builder.finish("first")

    def _step(self) -> list[Node]:
        builder = BlockBuilder(self.chip)
        builder.emit("saddi.s32", 8, INDEX, 1)
        builder.emit("smovi", 9, self.steps)
        builder.emit("scmp.lt.s32", 15, 8, 9)
        builder.emit("sandi", 11, INDEX, 1)
        builder.emit("sxori", NEXT, 11, 1)
        builder.emit("smuli.s32", 13, 8, self._block_step)
        builder.emit("smuli.s32", 14, NEXT, BLOCK_ROWS)
        builder.emit("smuli.s32", SLOT, 11, BLOCK_ROWS)
        choose = builder.finish("choose")
        builder = BlockBuilder(self.chip)
        builder.emit("dma.start", 0, 13, 14, 0, NEXT, 0, 0)
        prefetch = builder.finish("prefetch")
        builder = BlockBuilder(self.chip)
        builder.emit("dma.wait", 0, 11)
        builder.emit("dma.wait", 2, 11)
        wait = builder.finish("wait")
        builder = BlockBuilder(self.chip)
        builder.emit("sshli", TILE_ROW, TILE, 3)
        builder.emit("sadd.s32", ROW, SLOT, TILE_ROW)
        self.tile(builder)
        tiles = Loop(BLOCK_ROWS // 8, TILE, [builder.finish("tile")], parallel=True)
        builder = BlockBuilder(self.chip)
        builder.emit("smuli.s32", 23, INDEX, self._block_step)
        builder.emit("saddi.s32", 24, 23, self.target_row)
        builder.emit("dma.start", 1, SLOT, 24, 2, 11, 0, 0)
        return [choose, If(15, [prefetch]), wait, tiles, builder.finish("out")]

    def _last(self) -> Block:
        builder = BlockBuilder(self.chip)
        builder.emit("dma.wait", 2, 0)
        builder.emit("smovi", 24, 1)
        builder.emit("dma.wait", 2, 24)
        return builder.finish("last")
