"""`KernelPlan`: a kernel of windows between fusion and LLO.

    KernelPlan
      windows   WindowPlan: the grid, and the box of each array that a step needs or makes
      stages    what a step runs, in order; with the scratch that each takes and leaves
        ReduceStage   a reduce of one operand box
        StoredStage   an elementwise node that several stages read
        MatmulStage   the dot, its operands prepared where they do not feed the MXU as they lie
        ChainStage    row reductions and all that is computed of them in the same rows
        RootStage     results with the same box, from windows and scratch

A stage leaves its results in scratch or straight in output windows (`Target`). Where the grid cuts K
(`is_split`) the matmul adds to what earlier steps left, and what follows it runs on the last ones alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from compiler.analysis.dot_parts import DotParts
from compiler.analysis.fusion_body import FusionBody
from compiler.analysis.indexing import Expr
from compiler.analysis.indexing_boxes import Box
from compiler.analysis.kernel_vmem import held_rows, stream_rows
from compiler.analysis.windows import WindowPlan
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape
from tpu_sim.isa.geometry import SUBLANES


@dataclass(frozen=True, slots=True)
class Scratch:
    """A box of an array that a stage leaves in VMEM for later ones.

    `low` and `extent` are per dimension of `shape`; a replicated one holds a value a row.
    """

    name: str
    shape: ArrayShape
    low: tuple[Expr, ...]
    extent: tuple[int, ...]
    is_replicated: bool = False

    @property
    def rows(self) -> int:
        """Rows of 512 bytes, guard rows included."""
        return held_rows(self.shape, self.extent, replicated=self.is_replicated)


Target = Scratch | int
"""Where a result goes: scratch, or the output window of that number."""


@dataclass(frozen=True, slots=True)
class ReduceStage:
    """A reduce. `results` are its nodes, `targets` where each goes.

    A result that comes in another arrangement or type than its target's goes to its `turned` scratch
    first. `state_tiles` hold the running state of the loop. `is_cut`: the grid cuts what is reduced.
    """

    node: HloInstruction
    results: tuple[HloInstruction, ...]
    targets: tuple[Target, ...]
    turned: tuple[Scratch | None, ...]
    state_tiles: int
    is_cut: bool

    @property
    def outputs(self) -> tuple[int, ...]:
        """Numbers of the output windows that it makes."""
        return tuple([t for t in self.targets if isinstance(t, int)])

    @property
    def scratch(self) -> list[Scratch]:
        """What the stage takes, but for the running state."""
        return [s for s in (*self.targets, *self.turned) if isinstance(s, Scratch)]


@dataclass(frozen=True, slots=True)
class StoredStage:
    """A node computed over a box into scratch."""

    node: HloInstruction
    target: Scratch
    outputs: ClassVar[tuple[int, ...]] = ()

    @property
    def scratch(self) -> list[Scratch]:
        """What the stage takes."""
        return [self.target]


@dataclass(frozen=True, slots=True)
class MatmulOperand:
    """The box of a dot's operand that a step multiplies, and its prepared parts.

    No parts: the operand feeds the MXU as it lies.
    """

    box: Box
    parts: tuple[Scratch, ...] = ()


@dataclass(frozen=True, slots=True)
class MatmulStage:
    """A dot. `is_split`: the grid cuts K, the step adds to the target."""

    node: HloInstruction
    operands: tuple[MatmulOperand, ...]
    target: Target
    is_split: bool

    @property
    def outputs(self) -> tuple[int, ...]:
        """The number of the output window that it makes, if it makes one."""
        return () if isinstance(self.target, Scratch) else (self.target,)

    @property
    def scratch(self) -> list[Scratch]:
        """What the stage takes."""
        parts = [part for operand in self.operands for part in operand.parts]
        return [*parts, self.target] if isinstance(self.target, Scratch) else parts


@dataclass(frozen=True, slots=True)
class ChainStage:
    """A row chain (`compiler.analysis.row_chain`): blocks of whole rows, in registers.

    `members` come in their order, `targets` where each is left, if others read it. `outputs` are
    numbers of output windows. `low` and `extent` are the box of rows, of all dimensions but the last,
    which has `cols` elements. Rows come in `packing` phases.
    """

    members: tuple[HloInstruction, ...]
    targets: tuple[Scratch | None, ...]
    outputs: tuple[int, ...]
    low: tuple[Expr, ...]
    extent: tuple[int, ...]
    cols: int
    packing: int

    @property
    def scratch(self) -> list[Scratch]:
        """What the stage leaves for others."""
        return [target for target in self.targets if target is not None]


@dataclass(frozen=True, slots=True)
class RootStage:
    """Results computed together; `outputs` are numbers of output windows.

    Where they are elementwise in a dot right before, the dot's emitter may compute them on the way.
    """

    outputs: tuple[int, ...]
    scratch: ClassVar[tuple[Scratch, ...]] = ()


Stage = ReduceStage | StoredStage | MatmulStage | ChainStage | RootStage


@dataclass(frozen=True)
class KernelPlan:
    """A kernel: what it computes (`body`), its grid and windows, its stages.

    `parts` says into how many bf16 parts a dot's operands are split.
    """

    body: FusionBody
    windows: WindowPlan
    parts: DotParts
    stages: tuple[Stage, ...]

    def vmem(self) -> Iterator[tuple[str, int]]:
        """Name and rows of everything of its own that the kernel holds in VMEM; spill slots come on top."""
        plan = self.windows
        for kind, windows in (("in", plan.inputs), ("out", plan.outputs)):
            for window in (w for w in windows if not w.is_resident):
                yield f"{kind}.{window.node.name}", stream_rows(plan, window)
        for stage in self.stages:
            for scratch in stage.scratch:
                yield scratch.name, scratch.rows
            if isinstance(stage, ReduceStage):
                yield accumulators_name(stage.node), stage.state_tiles * SUBLANES

    @property
    def rows(self) -> int:
        """Rows of VMEM, 512 bytes each."""
        return sum([rows for _, rows in self.vmem()])


def accumulators_name(reduce: HloInstruction) -> str:
    """The name of the scratch for the running state of a reduce's loop."""
    return f"accumulators.{reduce.name}"
