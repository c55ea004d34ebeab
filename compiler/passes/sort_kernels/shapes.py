"""How the lines of a sort lie in the blocks that `network-sort` takes: ``[majors, rows, columns]``.

Lines of n elements along a dimension of ``[outer, n, inner]``, padded to a power of two:

    columns    [outer, n, inner]                as they lie
    turned     [1, n, outer * inner]            a lane for each line
    cut        [1, n / s, outer * inner * s]    s neighbouring lanes for each of few lines
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from compiler.analysis.code_costs import KernelCosts, SortCosts
from compiler.analysis.network_sort_grid import block_rows, network_passes, room
from compiler.hlo.ir import HloInstruction
from compiler.hlo.network import FEWEST_ROWS, may_sort
from compiler.passes.expanders.sort_parts import MAX_LOOPED_ARRAYS, is_unrolled
from compiler.rewrite.emitter import Emitter
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.geometry import LANES, SUBLANES

Instr = HloInstruction
KERNELS = 3
"""What makes words and brings lines into place, the sort, what brings them back."""


@dataclass(frozen=True)
class SortArrays:
    """What a sort has: operands of which `keys` are compared, results, whether equal ones keep order."""

    operands: int
    keys: int
    results: int
    is_stable: bool

    @property
    def moved(self) -> int:
        """Arrays that are exchanged."""
        return self.operands + self.is_stable


@dataclass(frozen=True)
class SortLines:
    """`count` elements a line of ``[outer, count, inner]``, in `lanes` lanes each."""

    outer: int
    count: int
    inner: int
    lanes: int = 1
    is_turned: bool = True

    @property
    def padded(self) -> int:
        """Elements of a line in the block."""
        return max(SUBLANES, 1 << (self.count - 1).bit_length())

    @property
    def rows(self) -> int:
        """Rows of a line in the block."""
        return self.padded // self.lanes

    @property
    def box(self) -> tuple[int, int, int]:
        """The dimensions of the block."""
        majors = 1 if self.is_turned else self.outer
        columns = self.outer * self.inner // majors * self.lanes
        together = LANES * (FEWEST_ROWS // self.rows) if self.rows < FEWEST_ROWS else 1
        return majors, self.rows, -(-columns // together) * together

    def to_box(self, e: Emitter, value: Instr, fill: int) -> Instr:
        """An array of ``[outer, count, inner]`` as a block; lines end with `fill`."""
        padded = e.pad_dim(value, 1, 0, self.padded - self.count, fill)
        if self.is_turned:
            cut = e.shaped(padded, (self.outer, self.lanes, self.rows, self.inner))
            columns = self.outer * self.inner * self.lanes
            padded = e.shaped(e.transpose(cut, (2, 0, 3, 1)), (1, self.rows, columns))
        return e.pad_dim(padded, 2, 0, self.box[2] - padded.array.dims[2])

    def of_box(self, e: Emitter, value: Instr) -> Instr:
        """A block as the array that it was made of."""
        majors = self.box[0]
        value = e.part(value, 2, 0, self.outer * self.inner // majors * self.lanes)
        if self.is_turned:
            apart = e.shaped(value, (self.rows, self.outer, self.inner, self.lanes))
            whole = e.transpose(apart, (1, 3, 0, 2))
            value = e.shaped(whole, (self.outer, self.padded, self.inner))
        return e.part(value, 1, 0, self.count)

    def cycles(self, arrays: SortArrays, chip: Chip) -> float | None:
        """What the sort is estimated to take beside its kernels' launches; None: VMEM has no room."""
        majors, rows, columns = self.box
        if not may_sort(majors, rows, columns, self.lanes):
            return None
        together = max(1, FEWEST_ROWS // rows)
        block = block_rows(rows, arrays.operands, arrays.results, arrays.is_stable)
        if block * together > room(chip):
            return None
        costs = SortCosts.of(chip)
        plan = network_passes(rows, self.lanes, arrays.moved, chip)
        keys = arrays.keys + arrays.is_stable
        exchange = costs.exchange if arrays.moved > 1 else costs.key
        exchange += costs.exchanged * (arrays.moved - 1) + costs.compared * (keys - 1)
        across = costs.across * arrays.moved
        total = 0.0
        for one in plan:
            turned = across if one.is_of_lanes else 0.0
            total += len(one.exchanges) * (exchange + turned) + costs.stored * arrays.moved
        if self.is_turned:
            total += costs.turned * (arrays.operands + arrays.results)
        return total * majors * rows * -(-columns // LANES) / SUBLANES


def forms(outer: int, count: int, inner: int) -> Iterator[SortLines]:
    """All ways in which lines may lie."""
    yield SortLines(outer, count, inner, is_turned=False)
    yield SortLines(outer, count, inner)
    lanes = 2
    while lanes * outer * inner <= LANES and lanes * FEWEST_ROWS < 2 * count:
        yield SortLines(outer, count, inner, lanes)
        lanes *= 2


def best_form(
    outer: int, count: int, inner: int, arrays: SortArrays, chip: Chip
) -> tuple[float, SortLines] | None:
    """How lines lie at the least cost, and what the sort takes so; None: VMEM has no room."""
    found = [(lines.cycles(arrays, chip), lines) for lines in forms(outer, count, inner)]
    fit = [(cycles, lines) for cycles, lines in found if cycles is not None]
    return min(fit, key=lambda pair: pair[0], default=None)


def network_cycles(outer: int, count: int, inner: int, arrays: SortArrays, chip: Chip) -> float:
    """What a network of whole arrays, which needs no room in VMEM, is estimated to take."""
    depth = (count - 1).bit_length()
    stages = depth * (depth + 1) // 2
    lines = outer * -(-inner // LANES) * LANES if inner > 1 else outer
    registers = -(-(lines << depth) // (LANES * SUBLANES))
    return stages * (_stage_cycles(stages, arrays, chip) + registers * SortCosts.of(chip).network)


def _stage_cycles(stages: int, arrays: SortArrays, chip: Chip) -> float:
    """What one of so many stages of whole arrays takes, whatever their size."""
    costs, launch = SortCosts.of(chip), KernelCosts.of(chip).launch
    if is_unrolled(stages, arrays.moved):
        return costs.stage + launch
    if arrays.moved > MAX_LOOPED_ARRAYS:
        return arrays.moved * launch
    return costs.looped_stage + arrays.moved * costs.looped_array
