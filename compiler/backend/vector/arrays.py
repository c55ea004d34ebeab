"""`VmemArray`: where (a box of) an array lies in VMEM, as vreg-sized tiles.

Let p be the dtype's packing. The physical view of an array has majors (all dims but the last two),
rows and cols; a vreg tile holds 8p rows x 128 cols, word (s, l) packing rows p*s .. p*s+p-1 of
column l, lowest bits first. Tile (m, rt, ct) of the held box starts at word row
``((m * row_tiles + rt) * col_tiles + ct) * 8`` of the buffer. Rank 1: element i is at row
i div 128, col i mod 128. Rank 0: a 1x1 matrix.

A box that is a part of a larger array in VMEM has that array's dimensions as its `pitch`: its tiles
are as far apart as theirs.

A `replicated` array holds one value a row, the same in all 128 lanes: its last logical dimension is
the row dimension and there is one (virtual) column. Row reductions leave their results like that.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.analysis.indexing import Expr, const
from compiler.analysis.kernel_vmem import GUARD_ROWS
from compiler.hlo.shape import ArrayShape
from compiler.kernels.plan import Scratch
from compiler.llo.builder import LloBuilder
from tpu_sim.isa.cached_property import cached_property


@dataclass(frozen=True)
class VmemArray:
    """A box of an array in a window.

    `base`: sreg with the word row of the buffer in the window (0: the register s0, which reads 0).
    `origin`: per logical dim the first index held, a multiple of the vreg tile in the tiled dims
    (rank 1: of 1024 * p). `extent`: per logical dim the size held; it is rounded up here.
    `guard`: word rows after the buffer, inside the window, that may be read without harm.
    `pitch`: per logical dim the size that addresses count with; empty: the extent.
    """

    shape: ArrayShape
    window: int
    base: int = 0
    origin: tuple[Expr, ...] = ()
    extent: tuple[int, ...] = ()
    replicated: bool = False
    guard: int = 0
    pitch: tuple[int, ...] = ()

    @cached_property
    def packing(self) -> int:
        """Elements in a 32-bit word."""
        return self.shape.dtype.packing

    @cached_property
    def majors(self) -> tuple[int, ...]:
        """Extents of the major dims (all but the tiled ones)."""
        return self.extent[: -self.tiled_rank] if self.tiled_rank else ()

    @cached_property
    def tiled_rank(self) -> int:
        """How many trailing logical dims the tile covers: 0, 1 (rank 1, replicated) or 2."""
        return min(self.shape.rank, 1 if self.replicated else 2)

    @cached_property
    def rows(self) -> int:
        """Rows held (not rounded)."""
        if self.shape.rank == 0:
            return 1
        if self.replicated:
            return self.extent[-1]
        return -(-self.extent[0] // 128) if self.shape.rank == 1 else self.extent[-2]

    @cached_property
    def cols(self) -> int:
        """Columns held (not rounded)."""
        if self.shape.rank == 0 or self.replicated:
            return 1
        return min(128, self.extent[0]) if self.shape.rank == 1 else self.extent[-1]

    @cached_property
    def row_tiles(self) -> int:
        """Vreg tiles down."""
        return -(-self.rows // (8 * self.packing))

    @cached_property
    def col_tiles(self) -> int:
        """Vreg tiles across."""
        return -(-self.cols // 128)

    @property
    def tiles_down(self) -> int:
        """Row tiles that rows may be counted through: of all majors where these lie one after another."""
        return (self.last_major + 1) * self.row_tiles if self.is_dense else self.row_tiles

    @property
    def is_dense(self) -> bool:
        """Whether the tiles follow each other."""
        return not self.pitch

    @cached_property
    def major_pitch(self) -> tuple[int, ...]:
        """Extents of the major dims as addresses count them."""
        return self.pitch[: -self.tiled_rank] if self.pitch else self.majors

    @cached_property
    def row_pitch(self) -> int:
        """Row tiles from one major index to the next."""
        return -(-self.pitch[-2] // (8 * self.packing)) if self.pitch else self.row_tiles

    @cached_property
    def col_pitch(self) -> int:
        """Tiles from one row tile to the next."""
        return -(-self.pitch[-1] // 128) if self.pitch else self.col_tiles

    @cached_property
    def last_major(self) -> int:
        """The linear index of the last major index."""
        last = 0
        for size, pitch in zip(self.majors, self.major_pitch, strict=True):
            last = last * pitch + size - 1
        return last

    @cached_property
    def word_rows(self) -> int:
        """Rows of 512 bytes from the first to the last tile, guard rows not counted."""
        rows = self.last_major * self.row_pitch + self.row_tiles - 1
        return (rows * self.col_pitch + self.col_tiles) * 8


def whole_array(
    shape: ArrayShape, window: int, *, replicated: bool = False, guard: int = 0
) -> VmemArray:
    """The array entire, from index 0 in every dimension."""
    origin = tuple(const(0) for _ in shape.dims)
    return VmemArray(shape, window, 0, origin, shape.dims, replicated, guard)


def allocate(builder: LloBuilder, scratch: Scratch) -> VmemArray:
    """A window of the kernel being built for planned scratch."""
    window = builder.window(scratch.name, scratch.rows)
    return VmemArray(
        scratch.shape, window, 0, scratch.low, scratch.extent, scratch.is_replicated, GUARD_ROWS
    )


__all__ = ["GUARD_ROWS", "VmemArray", "allocate", "whole_array"]
