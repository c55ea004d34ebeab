"""The grid of a `network-sort` kernel: which lines of a batch one step sorts, and with how many rows at once.

A unit is 128 lanes with a VMEM row for each row of the lines.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.analysis import vmem_shares
from compiler.analysis.fourier_grid import even_part
from compiler.analysis.windows import GridDim, grid_dim
from compiler.hlo.ir import HloInstruction
from compiler.hlo.network import FEWEST_ROWS, NetworkPass, passes
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.geometry import LANES, SUBLANES

_STEP_ROWS = 2048
"""About what a grid step takes: long enough for its transfers to run at full speed."""
_MOST_BITS = 5
"""Of positions whose exchanges are one pass: 32 registers of one array, which are all live."""
_SPARE_VREGS = 24
"""Left for what exchanges compare and select with (assumed)."""


@dataclass(frozen=True)
class NetworkGrid:
    """The grid, the units of a step, and what its lines go through."""

    grid: tuple[GridDim, GridDim]
    units: int
    plan: tuple[NetworkPass, ...]

    @property
    def is_disjoint(self) -> bool:
        """Whether no step sorts lines that another sorts."""
        return all(dim.is_even for dim in self.grid)


def array_count(sort: HloInstruction) -> int:
    """The arrays that move: operands, and places where equal elements keep their order."""
    return len(sort.operands) + sort.is_stable


def network_passes(rows: int, lanes: int, arrays: int, chip: Chip) -> tuple[NetworkPass, ...]:
    """The passes over lines of `rows` rows and so many lanes, of `arrays` arrays."""
    most = _MOST_BITS
    together = max(rows, FEWEST_ROWS) // SUBLANES
    while most > 1 and ((arrays << most) > chip.vregs - _SPARE_VREGS or 1 << most > together):
        most -= 1
    return passes(rows.bit_length() - 1, lanes.bit_length() - 1, most)


def fits(sort: HloInstruction, cut: NetworkGrid, chip: Chip) -> bool:
    """Whether a step has room in VMEM."""
    rows = sort.operands[0].array.dims[1]
    block = block_rows(rows, len(sort.operands), len(sort.results), sort.is_stable)
    return block * cut.units <= room(chip)


def block_rows(rows: int, operands: int, results: int, is_stable: bool) -> int:
    """VMEM rows that one unit takes: two buffers of operands and results, and blocks between passes."""
    arrays = operands + is_stable
    return rows * (2 * operands + 2 * results + 2 * arrays - results)


def room(chip: Chip) -> int:
    """VMEM rows that a step may take."""
    return int(chip.vmem_rows * vmem_shares.TRANSFORM_STEP)


def network_grid(sort: HloInstruction, chip: Chip) -> NetworkGrid:
    """Units of a step: enough for long transfers, several steps where there are many."""
    major, rows, lanes = sort.operands[0].array.dims
    lines = -(-lanes // LANES)
    together = max(1, FEWEST_ROWS // rows)
    block = block_rows(rows, len(sort.operands), len(sort.results), sort.is_stable)
    most = max(1, room(chip) // (block * together))
    wanted = max(1, min(most, _STEP_ROWS // (rows * together)))
    across = even_part(lines // together, wanted)
    majors = even_part(major, max(1, wanted // across))
    grid = grid_dim("a", 1, major, majors), grid_dim("c", LANES, lines, across * together)
    plan = network_passes(rows, sort.line_lanes, array_count(sort), chip)
    return NetworkGrid(grid, majors * across * together, plan)
