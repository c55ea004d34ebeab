"""Windows: what of each operand and result a kernel holds in VMEM at one grid step.

    WindowPlan
      grid       GridDim ..: which dimension moves, by how many tiles a step
      inputs     OperandWindow ..: the box of each array operand, per step
      outputs    OperandWindow ..
      derived    window origins that are clamped into their array

A box is an origin (one index expression per logical dimension, over the grid's variables) and
constant extents, whole vreg tiles in the tiled dimensions. A grid variable counts the blocks of a
dimension that the block divides: index expressions then know that origins are its multiples. Else it
counts tiles from the start of the iteration space to the first tile of the block, and the last block
starts earlier, so that it ends with the array: every block is whole.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from compiler.analysis.indexing import Expr, Var, var, variables
from compiler.analysis.indexing_boxes import Box, tile_units
from compiler.analysis.tiled_layout import memory_space
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.program import VMEM


@dataclass(frozen=True)
class GridDim:
    """One dimension of the grid: `steps` blocks of `block` tiles over `total` tiles.

    `variable` is the number of the step's block if `is_even`, else its first tile; `unit` elements
    make a tile. An `arbitrary` dimension (not `parallel`) carries values from step to step: its
    block divides `total` (more than the array has, where what lies beyond is left out), or its kernel
    knows what the last block holds again.
    """

    variable: Var
    unit: int
    total: int
    block: int
    parallel: bool = True

    @property
    def steps(self) -> int:
        """Number of blocks."""
        return -(-self.total // self.block)

    @property
    def origin(self) -> Expr:
        """First element of the step's block."""
        return var(self.variable) * (self.unit * self.block if self.is_even else self.unit)

    @property
    def is_even(self) -> bool:
        """Whether the block divides the dimension."""
        return self.total % self.block == 0


def grid_dim(
    name: str,
    unit: int,
    total: int,
    block: int,
    *,
    parallel: bool = True,
    may_repeat: bool = False,
) -> GridDim:
    """A grid dimension whose variable has its exact range.

    `may_repeat`: the kernel knows what a last block holds again, also where steps follow each other.
    """
    is_even = total % block == 0
    assert parallel or is_even or may_repeat, f"{name}: {block} does not divide {total}"
    last = total // block - 1 if is_even else total - block
    return GridDim(Var(name, 0, last), unit, total, block, parallel)


@dataclass(frozen=True)
class DerivedVar:
    """A variable whose value is `value` clamped into the variable's range."""

    variable: Var
    value: Expr


@dataclass(frozen=True)
class OperandWindow:
    """The box of one array that a step needs (inputs) or makes (outputs).

    `node` is the fusion parameter that it feeds, or the root that it takes; `shape` is the
    array's with its HBM layout. Where all that is read is one row, `row`, of the dimension that is
    second to last, only that row of each tile is moved; the box's other rows hold nothing.
    """

    node: HloInstruction
    shape: ArrayShape
    origin: tuple[Expr, ...]
    extent: tuple[int, ...]
    row: Expr | None = None

    @property
    def is_resident(self) -> bool:
        """Whether the array lies in VMEM: nothing is moved, the box is a view of it."""
        return memory_space(self.shape) == VMEM

    @property
    def is_dense(self) -> bool:
        """Whether the box's tiles follow each other: it has a buffer, or is a run of the array."""
        if not self.is_resident:
            return True
        units = tile_units(self.shape)
        is_whole = True
        for size, extent, unit in reversed(
            list(zip(self.shape.dims, self.extent, units, strict=True))
        ):
            tiles = -(-extent // unit)
            if tiles > 1 and not is_whole:
                return False
            is_whole &= tiles >= -(-size // unit)
        return True


@dataclass(frozen=True)
class Blocks:
    """Block size in units per dimension of the iteration space, and the order of the grid
    (dimension numbers, outermost first)."""

    sizes: tuple[int, ...]
    order: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PlanCost:
    """Estimated cycles of a whole kernel.

    In `waits` of them it waits for transfers; in `idle` others could go on at no cost.
    """

    cycles: int
    waits: int
    idle: int


@dataclass(frozen=True)
class WindowPlan:
    """Grid and windows of a kernel.

    `boxes` are the parts of materialised nodes that a step computes into scratch; `depths` the
    operand boxes of reduces, and the part of K of the dot, where the grid cuts them. The kernel
    `carries` arrays to VMEM, or not. Blocks that are `is_off_period` begin anywhere in a period of rows
    that move together. `blocks` is the choice that all this followed from.
    """

    grid: tuple[GridDim, ...]
    inputs: tuple[OperandWindow, ...]
    outputs: tuple[OperandWindow, ...]
    boxes: dict[HloInstruction, Box] = field(default_factory=dict)
    depths: dict[HloInstruction, Box] = field(default_factory=dict)
    derived: tuple[DerivedVar, ...] = ()
    carries: bool = False
    is_off_period: bool = False
    cost: PlanCost = PlanCost(0, 0, 0)
    blocks: Blocks = Blocks((), ())

    @property
    def estimated_cycles(self) -> int:
        """Of the whole kernel."""
        return self.cost.cycles

    @property
    def steps(self) -> int:
        """Grid steps in all."""
        return math.prod(d.steps for d in self.grid)

    def shared_dim(self, cores: int) -> int | None:
        """The grid dimension whose blocks `cores` of a device share, as many for each.

        It is the outermost one that moves. None: its blocks depend on each other, or something lies
        in the VMEM of one core.
        """
        number = next((i for i, d in enumerate(self.grid) if d.steps > 1), None)
        if cores == 1 or number is None:
            return None
        dim = self.grid[number]
        if not dim.parallel or dim.steps % cores:
            return None
        if self.carries or any(w.is_resident for w in (*self.inputs, *self.outputs)):
            return None
        is_apart = all(number in self.moving_dims(w.origin) for w in self.outputs)
        return number if is_apart else None

    def cores(self, chip: Chip) -> int:
        """How many cores of a device run the kernel: all or one."""
        count = chip.cores_per_device
        return 1 if self.shared_dim(count) is None else count

    def moving_dims(self, origin: tuple[Expr, ...]) -> tuple[int, ...]:
        """Numbers of the grid dimensions that an origin depends on, outermost first."""
        return moving_dims(self.grid, self.derived, origin)


def moving_dims(
    grid: tuple[GridDim, ...], derived: tuple[DerivedVar, ...], origin: tuple[Expr, ...]
) -> tuple[int, ...]:
    """Numbers of the dimensions of more than one step that `origin` depends on."""
    found: set[Var] = set().union(*[variables(expr) for expr in origin if expr.terms])
    if not found:
        return ()
    values = {d.variable: d.value for d in derived}
    pending = [variable for variable in found if variable in values]
    while pending:
        for variable in variables(values[pending.pop()]) - found:
            found.add(variable)
            if variable in values:
                pending.append(variable)
    return tuple([i for i, d in enumerate(grid) if d.variable in found and d.steps > 1])
