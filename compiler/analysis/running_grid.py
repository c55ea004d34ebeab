"""The grid of a `running-total` kernel: what of its array one step combines.

Steps along the running dimension follow each other and hand on what they have combined so far, so it is
the innermost one. A block that does not divide it leaves a last one that holds elements of the one before
again, as other dimensions have it too.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.analysis import vmem_shares
from compiler.analysis.indexing import Expr, const
from compiler.analysis.indexing_boxes import tile_units
from compiler.analysis.windows import GridDim, grid_dim
from compiler.hlo.ir import HloInstruction
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.geometry import SUBLANES

_STEP_TILES = 512
"""About what a grid step takes: its transfers hide the latency of the next one's."""
_LEAST_RUN = 8
"""Tiles along the running dimension that a step has room for, however many lie beside each other."""
_BLOCKS = 6
"""Blocks in VMEM: two of the operand, two of the result, and what is handed on, twice at most."""


@dataclass(frozen=True)
class RunningGrid:
    """Grid dimensions, the running one last; `blocks` and `order` are those of the array's dimensions."""

    grid: tuple[GridDim, ...]
    order: tuple[int, ...]
    blocks: tuple[int, ...]
    is_reverse: bool

    @property
    def running(self) -> GridDim:
        """The dimension whose steps follow each other."""
        return self.grid[-1]

    @property
    def is_disjoint(self) -> bool:
        """Whether no step computes what another one does."""
        return all(dim.is_even for dim in self.grid)

    @property
    def origin(self) -> tuple[Expr, ...]:
        """The first element of a step's block, by dimension of the array."""
        found = {d: dim.origin for d, dim in zip(self.order, self.grid, strict=True)}
        if self.is_reverse:
            last = (self.running.total - self.running.block) * self.running.unit
            found[self.order[-1]] = const(last) - self.running.origin
        return tuple(found[d] for d in range(len(found)))


def running_grid(total: HloInstruction, chip: Chip) -> RunningGrid:
    """Blocks of about as many tiles as a step should have, in rows as long as there is room for."""
    (axis,) = total.dimensions
    dims, units = total.array.dims, tile_units(total.array)
    tiles = [max(1, -(-size // unit)) for size, unit in zip(dims, units, strict=True)]
    room = int(chip.vmem_rows * vmem_shares.TRANSFORM_STEP) // (_BLOCKS * SUBLANES)
    left = max(1, min(_STEP_TILES, room))
    run = min(tiles[axis], _LEAST_RUN, left)
    blocks = [1] * len(dims)
    for d in reversed(range(len(dims))):
        limit = left // run if d > axis else left
        blocks[d] = _even_block(tiles[d], max(1, limit))
        left = max(1, left // blocks[d])
    order = (*(d for d in range(len(dims)) if d != axis), axis)
    grid = tuple(
        grid_dim(f"r{d}", units[d], tiles[d], blocks[d], parallel=d != axis, may_repeat=True)
        for d in order
    )
    return RunningGrid(grid, order, tuple(blocks), total.is_reverse)


def _even_block(tiles: int, limit: int) -> int:
    """The block of at most `limit` tiles that makes steps of about the same size."""
    return -(-tiles // -(-tiles // limit))
