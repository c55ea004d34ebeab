"""The grid of a `pair-fft` kernel: which lines of a batch one step takes through all stages.

A unit is 128 lines with a VMEM row for each point. Along dimension 1 of ``[a, n, c]`` units are
columns as they lie, along dimension 2 rows that are turned into columns.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.analysis import vmem_shares
from compiler.analysis.windows import GridDim, grid_dim
from compiler.hlo.fourier import root_rows
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import leaves
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.geometry import SUBLANES

LINES = 128
"""Lines of a unit."""
TILES = 16
"""Tiles of eight rows that make a unit of columns."""
_STEP_ROWS = 1024
"""Of each part, about what a grid step takes: long enough for its transfers to run at full speed."""


@dataclass(frozen=True)
class FourierGrid:
    """The grid, the units of a step with their rows, and blocks besides operands' and results'."""

    grid: tuple[GridDim, GridDim]
    units: int
    unit_rows: int
    spare: int

    @property
    def is_disjoint(self) -> bool:
        """Whether no step takes lines that another takes."""
        return all(dim.total % dim.block == 0 for dim in self.grid)


def fourier_grid(transform: HloInstruction, chip: Chip) -> FourierGrid:
    """Units of a step: enough for long transfers, several steps where there are many."""
    inputs = transform.operands[1:]
    results = len(leaves(transform.shape))
    dims = inputs[0].array.dims
    (dim,) = transform.dimensions
    is_turned = dim == 2
    # the imaginary part of what one block besides them holds may be wanted, too
    spare = 1 if results == 2 and not is_turned else 2
    rows = -(-dims[dim] // SUBLANES) * SUBLANES
    lines = -(-dims[3 - dim] // (SUBLANES if is_turned else LINES))
    blocks = 2 * (len(inputs) + results) + 2 * spare
    room = int(chip.vmem_rows * vmem_shares.TRANSFORM_STEP) - root_rows(dims[dim]) * (LINES + 1)
    most = max(1, room // (blocks * (-(-rows // LINES) * LINES if is_turned else rows)))
    wanted = max(1, min(most, -(-_STEP_ROWS // rows)))
    if not is_turned:
        across = even_part(lines, wanted)
        majors = even_part(dims[0], max(1, wanted // across))
        grid = grid_dim("a", 1, dims[0], majors), grid_dim("c", LINES, lines, across)
        return FourierGrid(grid, majors * across, rows, spare)
    down = TILES * even_part(lines // TILES, wanted) if lines > TILES else lines
    grid = grid_dim("a", 1, dims[0], 1), grid_dim("r", SUBLANES, lines, down)
    return FourierGrid(grid, -(-down // TILES), rows, spare)


def even_part(total: int, most: int) -> int:
    """At most so many of `total` in a step: the greatest divisor, if it is half of that or more."""
    most = min(total, most)
    divisors = (n for n in range(most, -(-most // 2) - 1, -1) if n and total % n == 0)
    return next(divisors, most)
