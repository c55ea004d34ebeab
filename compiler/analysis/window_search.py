"""The window search: blocks of the iteration space that fit VMEM and cost the fewest cycles.

Candidates fill a window from the innermost dimension outwards up to a number of tiles, with a few
limits on its width; each is judged by the machine's own cost: DMA and compute of a step overlap, the
first fetch and the last write-back do not.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

from compiler.analysis.boxes import leaf_boxes
from compiler.analysis.dot_parts import DotParts
from compiler.analysis.fusion_body import FusionBody, fusion_body
from compiler.analysis.indexing import Expr, Var, const, var, variables
from compiler.analysis.indexing_boxes import Box, round_to_tiles, tile_units
from compiler.analysis.indexing_maps import start_index
from compiler.analysis.iteration_space import (
    IterationDim,
    IterationSpace,
    iteration_space,
    update_space,
)
from compiler.analysis.tiled_layout import memory_space
from compiler.analysis.window_cost import least_cycles, plan_cycles, plan_traffic
from compiler.analysis.windows import (
    Blocks,
    DerivedVar,
    GridDim,
    OperandWindow,
    WindowPlan,
    grid_dim,
)
from compiler.diagnostics import UnsupportedError
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape, leaves
from compiler.kernels.plan import KernelPlan, ReduceStage
from compiler.kernels.planning import kernel_plan
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.program import SMEM, VMEM

LeafBoxes = Callable[[tuple[Box, ...]], dict[HloInstruction, Box]]

_ABOUT_THE_SAME = 1.02
"""How much more a plan may cost than the cheapest one if its windows are smaller."""
_AS_GOOD = 1.01
"""How much more a plan of a dot may cost than the cheapest one if it moves fewer bytes."""
_FEW_ROWS = 3072
"""Of VMEM, 1.5 MB: windows of a kernel need not be smaller together."""
_TILE_TARGETS: tuple[int, ...] = (1 << 30, 8192, 4096, 2048, 1024, 512, 256, 128, 64, 16, 4, 1)
_WIDTH_LIMITS: tuple[int, ...] = (1 << 30, 16, 8, 4, 2, 1)
_DEPTH_LIMITS = (1 << 30, 160, 64, 16, 4)
"""Tiles of K in a step."""
ONE_PASS = DotParts()
_ROW_BYTES = 512
_WASTEFUL = 1.5
"""Times the bytes of its arrays that a plan may move before blocks of other shapes are tried."""
_TILE_SIDES = (8, 32, 128)
"""Positions along a side of a tile: sublanes, those of packed types, lanes."""
VMEM_SHARE = 0.85
"""Of VMEM, what windows and scratch may take; the rest is for spills and alignment."""


@dataclass
class Candidate:
    """A kernel with some blocks of the iteration space; `plan` is in the first of the grid orders.

    `rows` of VMEM, in whatever order; `cycles` by order, as far as somebody asked.
    """

    plan: WindowPlan
    kernel: KernelPlan
    rows: int
    is_usable: bool
    cycles: dict[tuple[int, ...], int] = field(default_factory=dict)


class Candidates:
    """The kernels that blocks of a fusion's iteration space make, however much VMEM there is.

    Searches for one fusion in several parts of VMEM look at the same ones. `leaf_boxes_of` says what
    a step's part of the results reads, where no index map does.
    """

    def __init__(
        self,
        fusion: HloInstruction,
        body: FusionBody,
        space: IterationSpace,
        parts: DotParts = ONE_PASS,
        leaf_boxes_of: LeafBoxes | None = None,
    ) -> None:
        self.fusion = fusion
        self.body = body
        self.space = space
        self.parts = parts
        self.results = leaves(fusion.shape)
        self.orders = grid_orders(space, body)
        self._leaf_boxes_of = leaf_boxes_of
        self._known: dict[tuple[int, ...], Candidate] = {}

    def of(self, sizes: tuple[int, ...]) -> Candidate:
        """The kernel with these blocks."""
        found = self._known.get(sizes)
        if found is None:
            found = self._known[sizes] = self._made(sizes)
        return found

    def _made(self, sizes: tuple[int, ...]) -> Candidate:
        blocks = Blocks(sizes, self.orders[0])
        plan = make_plan(
            self.fusion, self.body, self.space, blocks, self.results, self._leaf_boxes_of
        )
        kernel = kernel_plan(self.body, plan, self.parts)
        is_usable = _has_views(kernel) and moves_together(plan, self.space)
        return Candidate(plan, kernel, kernel.rows, is_usable)

    def cycles(self, candidate: Candidate, order: tuple[int, ...], chip: Chip) -> int:
        """What a kernel costs in a grid order on `chip`, the same one each time."""
        found = candidate.cycles.get(order)
        if found is None:
            ordered = _reordered(candidate.plan, order)
            found = plan_cycles(replace(candidate.kernel, windows=ordered), chip)
            candidate.cycles[order] = found
        return found


def plan_windows(fusion: HloInstruction, chip: Chip, parts: DotParts = ONE_PASS) -> WindowPlan:
    """The cheapest plan for a kLoop, kInput or kOutput fusion.

    Raises UnsupportedError when not even the smallest windows fit VMEM.
    """
    body = fusion_body(fusion)
    space = iteration_space(body, fusion.kind, parts)
    return search(Candidates(fusion, body, space, parts), chip)


def plan_update(fusion: HloInstruction, body: FusionBody, chip: Chip) -> WindowPlan:
    """The cheapest plan for a fusion of a dynamic-update-slice; errors as of `plan_windows`.

    Where the operand is an array in memory, only the update moves; else every element of the result.
    """
    (root,) = body.roots
    if root.operands[0].opcode != "parameter":
        return plan_windows(fusion, chip)
    return search(Candidates(fusion, body, update_space(root)), chip)


def search(candidates: Candidates, chip: Chip) -> WindowPlan:
    """The cheapest plan over an iteration space; errors as of `plan_windows`.

    Of plans without a dot that cost about the same it is the one with the smallest windows: they
    take less of VMEM, and an emulating computer keeps them in its caches.
    """
    fusion, space = candidates.fusion, candidates.space
    results = candidates.results
    found: list[tuple[int, WindowPlan]] = []
    least = math.inf
    budget = int(chip.vmem_rows * VMEM_SHARE)
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
        for order in candidates.orders:
            cycles = candidates.cycles(candidate, order, chip)
            if cycles < least * _ABOUT_THE_SAME:
                ordered = _reordered(candidate.plan, order)
                found.append((candidate.rows, replace(ordered, estimated_cycles=cycles)))
            least = min(least, cycles)
    if not found:
        raise UnsupportedError(
            f"%{fusion.name}: no window of its operands fits the {chip.vmem_bytes} bytes of VMEM; "
            "split the operation or use smaller dimensions",
            fusion.span,
        )
    if candidates.body.dot is not None:
        plans = [plan for _, plan in found if plan.estimated_cycles <= least * _AS_GOOD]
        return min(plans, key=lambda plan: (plan_traffic(plan).moved, plan.estimated_cycles))
    near = [
        (rows, plan) for rows, plan in found if plan.estimated_cycles <= least * _ABOUT_THE_SAME
    ]
    return min(near, key=lambda item: (max(item[0], _FEW_ROWS), item[1].estimated_cycles))[1]


def has_plan(candidates: Candidates, chip: Chip) -> bool:
    """Whether `search` finds a plan; asks small windows first, and no further than one that fits."""
    space, body = candidates.space, candidates.body
    budget = int(chip.vmem_rows * VMEM_SHARE)
    small_first = reversed(list(_candidates(space, body)))
    for sizes in itertools.chain(small_first, _last_resort(space, body)):
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


def _candidates(
    space: IterationSpace, body: FusionBody, depths: tuple[int, ...] = ()
) -> Iterator[tuple[int, ...]]:
    """Distinct block shapes, largest first; `depths` are limits on tiles of K."""
    has_depth = body.dot is not None and not space.dims[-1].parallel
    outer_dims = space.dims[:-1] if has_depth else space.dims
    ends = _depth_blocks(space.dims[-1], depths or _DEPTH_LIMITS) if has_depth else [()]
    targets = list(itertools.product(_TILE_TARGETS, _WIDTH_LIMITS))
    apart = tuple(replace(d, merged=()) for d in outer_dims)
    spaces = dict.fromkeys((outer_dims, apart))
    filled = (_fill(dims, *target) for target in targets for dims in spaces)
    for outer in dict.fromkeys(filled):
        for end in ends:
            yield (*outer, *end)


def _last_resort(space: IterationSpace, body: FusionBody) -> Iterator[tuple[int, ...]]:
    """Blocks for when no others fit: dimensions that are better whole are cut too."""
    if any(d.better_whole or not d.parallel for d in space.dims):
        dims = tuple(replace(d, better_whole=False) for d in space.dims)
        yield from _candidates(replace(space, dims=dims), body, (*_DEPTH_LIMITS, 1))


def _sources(
    candidates: Candidates, found: list[tuple[int, WindowPlan]]
) -> Iterator[tuple[int, ...]]:
    """Block shapes; further ones where no plan, or only a wasteful one, was found by then."""
    space, body = candidates.space, candidates.body
    yield from _candidates(space, body)
    if not found:
        yield from _last_resort(space, body)
    elif body.dot is None:
        best = min((plan for _, plan in found), key=lambda plan: plan.estimated_cycles)
        traffic = plan_traffic(best)
        if traffic.moved > _WASTEFUL * traffic.least:
            yield from _turned_candidates(space.dims)


def _turned_candidates(dims: tuple[IterationDim, ...]) -> Iterator[tuple[int, ...]]:
    """Block shapes that begin with a part of an outer dimension.

    It lies along sublanes or lanes of an operand: whoever fetches one of its positions fetches a tile.
    """
    targets = list(itertools.product(_TILE_TARGETS, _WIDTH_LIMITS))
    outer = [i for i, d in enumerate(dims[:-1]) if d.tiles > 1 and _is_cut(d)]
    shapes: dict[tuple[int, ...], None] = {}
    for first, limit in itertools.product(outer, _TILE_SIDES):
        size = _block(dims[first], limit)
        rest = (*dims[:first], replace(dims[first], size=1, unit=1), *dims[first + 1 :])
        for target, width in targets:
            sizes = _fill(rest, target // size, width)
            shapes[(*sizes[:first], size, *sizes[first + 1 :])] = None
    yield from shapes


def _least_rows(space: IterationSpace, sizes: tuple[int, ...], results: list[ArrayShape]) -> int:
    """A lower bound of the VMEM rows of a candidate, from its results alone."""
    elements = [min(b * d.unit, d.size) for d, b in zip(space.dims, sizes, strict=True)]
    total = 0
    for result, dims in zip(results, space.root_dims, strict=True):
        if memory_space(result) != VMEM:
            count = math.prod(elements[d] for d in dims)
            total += count // (_ROW_BYTES * 8 // result.dtype.bits)
    return total


def _reordered(plan: WindowPlan, order: tuple[int, ...]) -> WindowPlan:
    """The same blocks in another order of the grid: windows stay what they are."""
    if order == plan.blocks.order:
        return plan
    dims = dict(zip(plan.blocks.order, plan.grid, strict=True))
    blocks = Blocks(plan.blocks.sizes, order)
    return replace(plan, grid=tuple(dims[i] for i in order), blocks=blocks)


def _depth_blocks(depth: IterationDim, limits: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Blocks of K: all of it, and parts."""
    allowed = [limit for limit in limits if _is_cut(depth) or limit >= depth.tiles]
    return [(size,) for size in dict.fromkeys(_block(depth, limit) for limit in allowed)]


def _fill(dims: tuple[IterationDim, ...], target: int, width: int) -> tuple[int, ...]:
    """Blocks of about `target` tiles, at most `width` of them side by side."""
    sizes: list[int] = []
    left = target
    for number in reversed(range(len(dims))):
        dim = dims[number]
        limit = max(1, left) if _is_cut(dim) else dim.tiles
        if _is_cut(dim) and number == len(dims) - 1:
            limit = min(limit, width)
        size = _block(dim, limit)
        sizes.append(size)
        left //= size
    return tuple(reversed(sizes))


def _is_cut(dim: IterationDim) -> bool:
    return dim.splittable and not dim.better_whole


def _block(dim: IterationDim, limit: int) -> int:
    """The best block of at most `limit` units: a divisor when a large one exists, of merged dimensions
    one that lies within or holds whole ones."""
    if limit >= dim.tiles:
        return dim.tiles
    if dim.merged:
        return max(d for d in _divisors(dim.tiles) if d <= limit and _is_within(d, dim.merged))
    divisor = max(d for d in _divisors(dim.tiles) if d <= limit)
    even = -(-dim.tiles // -(-dim.tiles // limit))
    if not dim.parallel or divisor * 4 >= even * 3:
        return divisor
    return even


def _is_within(size: int, periods: tuple[int, ...]) -> bool:
    return all(size % period == 0 or period % size == 0 for period in periods)


@lru_cache
def _divisors(number: int) -> tuple[int, ...]:
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))


def grid_orders(space: IterationSpace, body: FusionBody) -> list[tuple[int, ...]]:
    """Grid orders: parallel dimensions outside; for a dot also columns before rows."""
    parallel = [i for i, d in enumerate(space.dims) if d.parallel]
    arbitrary = [i for i, d in enumerate(space.dims) if not d.parallel]
    orders = [tuple(parallel + arbitrary)]
    if body.dot is not None and len(parallel) >= 2:
        orders.append((*parallel[:-2], parallel[-1], parallel[-2], *arbitrary))
    return orders


def make_plan(
    fusion: HloInstruction,
    body: FusionBody,
    space: IterationSpace,
    blocks: Blocks,
    results: list[ArrayShape],
    leaf_boxes_of: LeafBoxes | None = None,
) -> WindowPlan:
    """The grid and windows that follow from a choice of blocks."""
    dims: dict[int, GridDim] = {}
    for i, dim in enumerate(space.dims):
        dims[i] = grid_dim(f"g{i}", dim.unit, dim.tiles, blocks.sizes[i], parallel=dim.parallel)
    grid = tuple(dims[i] for i in blocks.order)
    lows = [dims[i].origin for i in range(len(space.dims))]
    extents = [_extent(d, dims[i]) for i, d in enumerate(space.dims)]
    step = Box(tuple(lows), tuple(extents))
    root_boxes = tuple(
        _root_box(space, step, root, numbers)
        for root, numbers in zip(body.roots, space.root_dims, strict=True)
    )
    depths = _depths(body, space, step)
    if leaf_boxes_of is not None:
        boxes = leaf_boxes_of(root_boxes)
    else:
        boxes = leaf_boxes(body, root_boxes, depths)
    clamps = _Clamps()
    inputs = tuple(
        _input_window(p, s, boxes[p], clamps)
        for p, s in _window_parameters(fusion, body)
        if p in boxes
    )
    outputs = tuple(
        OperandWindow(root, shape, *clamps.inside(box, shape))
        for root, shape, box in zip(body.roots, results, root_boxes, strict=True)
    )
    scratch = {n: b for n, b in boxes.items() if n in body.leaves}
    return WindowPlan(grid, inputs, outputs, scratch, depths, tuple(clamps.derived), blocks=blocks)


def _root_box(
    space: IterationSpace, step: Box, root: HloInstruction, numbers: tuple[int, ...]
) -> Box:
    """The part of a result that a step makes."""
    box = Box(tuple(step.low[d] for d in numbers), tuple(step.extent[d] for d in numbers))
    if not space.offsets:
        return box
    moved = tuple(low + by for low, by in zip(box.low, space.offsets, strict=True))
    return round_to_tiles(root.array, Box(moved, box.extent))


def _extent(dim: IterationDim, grid: GridDim) -> int:
    return dim.size if grid.steps == 1 else grid.block * grid.unit


def _depths(body: FusionBody, space: IterationSpace, step: Box) -> dict[HloInstruction, Box]:
    """What a step sums over where the grid cuts it: the part of K of the dot, or the operand box
    of the reduces of a kInput fusion."""
    if all(d.parallel for d in space.dims):
        return {}
    if body.dot is not None:
        is_cut = step.extent[-1] < space.dims[-1].size
        return {body.dot: Box(step.low[-1:], step.extent[-1:])} if is_cut else {}
    return {reduce: step for reduce in body.reduces if _spans(reduce, space)}


def _spans(reduce: HloInstruction, space: IterationSpace) -> bool:
    arbitrary = {i for i, d in enumerate(space.dims) if not d.parallel}
    is_same = reduce.operands[0].array.dims == tuple(d.size for d in space.dims)
    return is_same and set(reduce.dimensions) == arbitrary


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
