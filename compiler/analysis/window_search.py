"""The window search: blocks of the iteration space that fit VMEM and cost the fewest cycles.

Each candidate (`block_shapes`) is judged by the machine's own cost: DMA and compute of a step overlap,
the first fetch and the last write-back do not.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from compiler.analysis import vmem_shares
from compiler.analysis.block_shapes import last_resort, turned_shapes
from compiler.analysis.fusion_body import FusionBody, fusion_body
from compiler.analysis.grid_steps import ONE_PASS, GridSteps
from compiler.analysis.indexing import Expr, Var, const, var, variables
from compiler.analysis.indexing_boxes import Box, tile_units
from compiler.analysis.indexing_maps import start_index
from compiler.analysis.iteration_space import IterationSpace, iteration_space, update_space
from compiler.analysis.tiled_layout import memory_space
from compiler.analysis.window_cost import least_cycles, plan_cost, plan_traffic
from compiler.analysis.windows import (
    Blocks,
    DerivedVar,
    OperandWindow,
    PlanCost,
    WindowPlan,
)
from compiler.diagnostics import UnsupportedError
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape, leaves
from compiler.kernels.plan import KernelPlan, ReduceStage
from compiler.kernels.planning import kernel_plan
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.geometry import ROW_BYTES
from tpu_sim.isa.program import SMEM, VMEM

_ABOUT_THE_SAME = 1.02
"""How much more a plan may cost than the cheapest one if its windows are smaller."""
_AS_GOOD = 1.01
"""How much more a plan of a dot may cost than the cheapest one if it moves fewer bytes."""
_AS_FEW_BYTES = 1.1
"""How many more bytes than the fewest a plan may move if its windows are smaller."""
_FEW_ROWS = 3072
"""Of VMEM, 1.5 MB: windows of a kernel need not be smaller together."""
_WASTEFUL = 1.5
"""Times the bytes of its arrays that a plan may move before blocks of other shapes are tried."""


@dataclass
class Candidate:
    """A kernel with some blocks of the iteration space; `plan` is in the first of the grid orders.

    `rows` of VMEM, in whatever order; `costs` by order, as far as somebody asked.
    """

    plan: WindowPlan
    kernel: KernelPlan
    rows: int
    is_usable: bool
    costs: dict[tuple[int, ...], PlanCost] = field(default_factory=dict)


class Candidates:
    """The kernels that blocks of a fusion's iteration space make, however much VMEM there is.

    Searches for one fusion in several parts of VMEM look at the same ones.
    """

    def __init__(self, fusion: HloInstruction, steps: GridSteps) -> None:
        self.fusion = fusion
        self.steps = steps
        self.results = leaves(fusion.shape)[: len(steps.body.roots)]
        self._known: dict[tuple[int, ...], Candidate] = {}

    def of(self, sizes: tuple[int, ...]) -> Candidate:
        """The kernel with these blocks."""
        found = self._known.get(sizes)
        if found is None:
            found = self._known[sizes] = self._made(sizes)
        return found

    def _made(self, sizes: tuple[int, ...]) -> Candidate:
        steps = self.steps
        plan = make_plan(self.fusion, steps, Blocks(sizes, steps.orders[0]))
        kernel = kernel_plan(steps.body, plan, steps.parts)
        is_usable = _has_views(kernel) and moves_together(plan, steps.space)
        return Candidate(plan, kernel, kernel.rows, is_usable)

    def cost(self, candidate: Candidate, order: tuple[int, ...], chip: Chip) -> PlanCost:
        """What a kernel costs in a grid order on `chip`, the same one each time."""
        found = candidate.costs.get(order)
        if found is None:
            ordered = _reordered(candidate.plan, order)
            found = plan_cost(replace(candidate.kernel, windows=ordered), chip)
            candidate.costs[order] = found
        return found


def plan_windows(fusion: HloInstruction, chip: Chip) -> WindowPlan:
    """The cheapest plan for a kLoop, kInput or kOutput fusion.

    Raises UnsupportedError when not even the smallest windows fit VMEM.
    """
    body = fusion_body(fusion)
    return search(
        Candidates(fusion, GridSteps(body, iteration_space(body, fusion.kind, ONE_PASS))), chip
    )


def plan_update(fusion: HloInstruction, body: FusionBody, chip: Chip) -> WindowPlan:
    """The cheapest plan for a fusion of a dynamic-update-slice; errors as of `plan_windows`.

    Where the operand is an array in memory, only the update moves; else every element of the result.
    """
    (root,) = body.roots
    if root.operands[0].opcode != "parameter":
        return plan_windows(fusion, chip)
    return search(Candidates(fusion, GridSteps(body, update_space(root))), chip)


def search(candidates: Candidates, chip: Chip) -> WindowPlan:
    """The cheapest plan over an iteration space; errors as of `plan_windows`."""
    found = cheapest(candidates, chip)
    if found is None:
        raise no_windows(candidates.fusion, chip)
    return found


def no_windows(fusion: HloInstruction, chip: Chip) -> UnsupportedError:
    """What a user is told of a fusion none of whose windows fit."""
    return UnsupportedError(
        f"%{fusion.name}: no window of its operands fits the {chip.vmem_bytes} bytes of VMEM; "
        "split the operation or use smaller dimensions",
        fusion.span,
    )


def cheapest(candidates: Candidates, chip: Chip) -> WindowPlan | None:
    """The cheapest plan over an iteration space; None where not even the smallest windows fit VMEM.

    Of plans without a dot that cost about the same and move about as few bytes it is the one with the
    smallest windows: they take less of VMEM, and an emulating computer keeps them in its caches.
    """
    fusion, space = candidates.fusion, candidates.steps.space
    results = candidates.results
    found: list[tuple[int, WindowPlan]] = []
    least = math.inf
    budget = int(chip.vmem_rows * vmem_shares.WINDOWS)
    moves = any(memory_space(s) != VMEM for s in (*results, *(o.array for o in fusion.operands)))
    for sizes in _sources(candidates, found):
        steps = math.prod(-(-d.tiles // b) for d, b in zip(space.dims, sizes, strict=True))
        if moves and least_cycles(steps, chip) >= least:
            continue
        if _least_rows(space, sizes, results) > budget:
            continue
        candidate = candidates.of(sizes)
        if candidate.rows > budget or not candidate.is_usable:
            continue
        for order in candidates.steps.orders:
            cost = candidates.cost(candidate, order, chip)
            if cost.cycles < least * _ABOUT_THE_SAME:
                ordered = _reordered(candidate.plan, order)
                found.append((candidate.rows, replace(ordered, cost=cost)))
            least = min(least, cost.cycles)
    if not found:
        return None
    if candidates.steps.body.dot is not None:
        plans = [plan for _, plan in found if plan.estimated_cycles <= least * _AS_GOOD]
        return min(plans, key=lambda plan: (plan_traffic(plan).moved, plan.estimated_cycles))
    near = [
        (rows, plan_traffic(plan).moved, plan)
        for rows, plan in found
        if plan.estimated_cycles <= least * _ABOUT_THE_SAME
    ]
    most = _AS_FEW_BYTES * min(moved for _, moved, _ in near)
    few = [(rows, plan) for rows, moved, plan in near if moved <= most]
    return min(few, key=lambda item: (max(item[0], _FEW_ROWS), item[1].estimated_cycles))[1]


def has_plan(candidates: Candidates, chip: Chip) -> bool:
    """Whether `search` finds a plan; asks small windows first, and no further than one that fits."""
    steps, space = candidates.steps, candidates.steps.space
    budget = int(chip.vmem_rows * vmem_shares.WINDOWS)
    further = last_resort(space, has_dot=steps.body.dot is not None)
    for sizes in itertools.chain(reversed(steps.shapes), further):
        if _least_rows(space, sizes, candidates.results) <= budget:
            candidate = candidates.of(sizes)
            if candidate.rows <= budget and candidate.is_usable:
                return True
    return False


def _has_views(kernel: KernelPlan) -> bool:
    """Whether the boxes of arrays in VMEM can be used where they lie: a reduce writes runs of rows."""
    reduced = {r for s in kernel.stages if isinstance(s, ReduceStage) for r in s.results}
    return all(w.is_dense for w in kernel.windows.outputs if w.node in reduced)


def moves_together(plan: WindowPlan, space: IterationSpace) -> bool:
    """Whether every result's part is where the step is: none was moved to stay inside its array.

    A result that has another's tiled dimension as a major one ends before the last tile does. Its
    last part would begin earlier than all else that the step holds, with elements nothing else has.
    """
    moved = {d.variable for d in plan.derived}
    origins = [expr for window in plan.outputs for expr in window.origin]
    return bool(space.offsets) or not any(moved & variables(expr) for expr in origins)


def _sources(
    candidates: Candidates, found: list[tuple[int, WindowPlan]]
) -> Iterator[tuple[int, ...]]:
    """Block shapes; further ones where no plan, or only a wasteful one, was found by then."""
    steps = candidates.steps
    yield from steps.shapes
    has_dot = steps.body.dot is not None
    if not found:
        yield from last_resort(steps.space, has_dot=has_dot)
    elif not has_dot:
        best = min((plan for _, plan in found), key=lambda plan: plan.estimated_cycles)
        traffic = plan_traffic(best)
        if traffic.moved > _WASTEFUL * traffic.least:
            yield from turned_shapes(steps.space.dims)


def _least_rows(space: IterationSpace, sizes: tuple[int, ...], results: list[ArrayShape]) -> int:
    """A lower bound of the VMEM rows of a candidate, from its results alone."""
    elements = [min(b * d.unit, d.size) for d, b in zip(space.dims, sizes, strict=True)]
    total = 0
    for result, dims in zip(results, space.root_dims, strict=True):
        if memory_space(result) != VMEM:
            count = math.prod(elements[d] for d in dims)
            total += count // (ROW_BYTES * 8 // result.dtype.bits)
    return total


def _reordered(plan: WindowPlan, order: tuple[int, ...]) -> WindowPlan:
    """The same blocks in another order of the grid: windows stay what they are."""
    if order == plan.blocks.order:
        return plan
    dims = dict(zip(plan.blocks.order, plan.grid, strict=True))
    blocks = Blocks(plan.blocks.sizes, order)
    return replace(plan, grid=tuple(dims[i] for i in order), blocks=blocks)


def make_plan(fusion: HloInstruction, steps: GridSteps, blocks: Blocks) -> WindowPlan:
    """The grid and windows that follow from a choice of blocks."""
    body, step = steps.body, steps.of(blocks.sizes)
    clamps = _Clamps()
    inputs = tuple(
        _input_window(p, s, step.reads[p], clamps)
        for p, s in _window_parameters(fusion, body)
        if p in step.reads
    )
    results = leaves(fusion.shape)[: len(body.roots)]
    outputs = tuple(
        OperandWindow(root, shape, *clamps.inside(box, shape))
        for root, shape, box in zip(body.roots, results, step.roots, strict=True)
    )
    grid = tuple(step.dims[i] for i in blocks.order)
    scratch = {n: b for n, b in step.reads.items() if n in body.leaves}
    return WindowPlan(
        grid,
        inputs,
        outputs,
        scratch,
        step.depths,
        tuple(clamps.derived),
        carries=bool(body.carried),
        is_off_period=any(
            dim.is_off_period(size)
            for size, dim in zip(blocks.sizes, steps.space.dims, strict=True)
        ),
        blocks=blocks,
    )


def _window_parameters(
    fusion: HloInstruction, body: FusionBody
) -> list[tuple[HloInstruction, ArrayShape]]:
    """Fusion parameters in HBM with the shape (and layout) of the operand that feeds them."""
    pairs = zip(body.parameters, fusion.operands, strict=True)
    return [(p, o.array) for p, o in pairs if not _is_in_smem(o.array)]


def _is_in_smem(shape: ArrayShape) -> bool:
    return memory_space(shape) == SMEM


def _input_window(
    parameter: HloInstruction, shape: ArrayShape, box: Box, clamps: _Clamps
) -> OperandWindow:
    return OperandWindow(parameter, shape, *clamps.inside(box, shape), _only_row(parameter, box))


def _only_row(parameter: HloInstruction, box: Box) -> Expr | None:
    """The row, second to last dimension, that every reader of a parameter takes, if it is one.

    The box may reach further, where a dot takes its operand in more rows than a tile has.
    """
    dim = parameter.array.rank - 2
    if dim < 0 or box.extent[dim] > tile_units(parameter.array)[dim]:
        return None
    starts = {
        start_index(u, dim) if u.opcode == "dynamic-slice" and u.array.dims[dim] == 1 else None
        for u in parameter.users
    }
    return starts.pop() if len(starts) == 1 else None


class _Clamps:
    """Window origins brought inside their arrays, by clamped variables where they may leave it."""

    def __init__(self) -> None:
        self.derived: list[DerivedVar] = []

    def inside(self, box: Box, shape: ArrayShape) -> tuple[tuple[Expr, ...], tuple[int, ...]]:
        """Origin and extent of the window for `box`."""
        origin: list[Expr] = []
        sides = zip(box.low, box.extent, shape.dims, tile_units(shape), strict=True)
        for low, extent, size, unit in sides:
            last = -(-size // unit) - -(-extent // unit)
            origin.append(self._clamped(low, unit, last))
        return tuple(origin), box.extent

    def _clamped(self, low: Expr, unit: int, last: int) -> Expr:
        """`low`, or a variable that holds its tile number limited to 0..last."""
        first, end = low.range()
        if first >= 0 and end <= last * unit:
            return low
        if last <= 0:
            return const(0)
        tile = low // unit
        for known in self.derived:
            if known.value == tile and known.variable.high == last:
                return var(known.variable) * unit
        variable = Var(f"w{len(self.derived)}", 0, last)
        self.derived.append(DerivedVar(variable, tile))
        return var(variable) * unit
