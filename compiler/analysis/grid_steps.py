"""What the steps of a fusion's grid make, sum over and read, for whatever blocks.

That follows from what the fusion computes and not from where its arrays lie, so that whoever plans a
fusion with its arrays in HBM, in VMEM and in several parts of VMEM has it worked out once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from compiler.analysis.block_shapes import block_shapes
from compiler.analysis.boxes import leaf_boxes
from compiler.analysis.dot_parts import DotParts
from compiler.analysis.fusion_body import FusionBody
from compiler.analysis.indexing import variables
from compiler.analysis.indexing_boxes import Box, round_to_tiles
from compiler.analysis.iteration_space import IterationDim, IterationSpace
from compiler.analysis.windows import GridDim, grid_dim
from compiler.hlo.ir import HloInstruction
from tpu_sim.isa.cached_property import cached_property

LeafBoxes = Callable[[tuple[Box, ...]], dict[HloInstruction, Box]]
ONE_PASS = DotParts()
_Nodes = tuple[HloInstruction, ...]


@dataclass(frozen=True)
class StepBoxes:
    """One step with some blocks: `dims` of the grid in the order of the iteration space, the parts
    of the `roots` that it makes, and those of leaves and materialised nodes (`reads`) behind them.

    `depths` are the operand boxes of reduces, and the part of K of the dot, where the grid cuts them.
    """

    dims: tuple[GridDim, ...]
    roots: tuple[Box, ...]
    depths: dict[HloInstruction, Box]
    reads: dict[HloInstruction, Box]

    @cached_property
    def has_starts(self) -> bool:
        """Whether a box begins where some node says at run time."""
        boxes = (*self.roots, *self.depths.values(), *self.reads.values())
        return any(v.start_of for box in boxes for low in box.low for v in variables(low))

    def of_equals(self, equals: Mapping[HloInstruction, HloInstruction]) -> StepBoxes:
        """The same for a fusion with other nodes that compute the same; there are no starts."""
        depths = {equals[node]: box for node, box in self.depths.items()}
        reads = {equals[node]: box for node, box in self.reads.items()}
        return StepBoxes(self.dims, self.roots, depths, reads)


class GridSteps:
    """The steps of one fusion's grids, by sizes of blocks.

    `leaf_boxes_of` says what a step's part of the results reads, where no index map does. `alike`
    are the steps of a fusion that computes the same with other nodes, in the same order: what one of
    them has worked out the others have. Nodes may change later, so that each works out its own.
    """

    def __init__(
        self,
        body: FusionBody,
        space: IterationSpace,
        parts: DotParts = ONE_PASS,
        leaf_boxes_of: LeafBoxes | None = None,
        alike: GridSteps | None = None,
    ) -> None:
        self.body = body
        self.space = space
        self.parts = parts
        self._leaf_boxes_of = leaf_boxes_of
        self._nodes = tuple(body.computation)
        self._known: dict[tuple[int, ...], StepBoxes] = {}
        self._shared: dict[tuple[int, ...], tuple[_Nodes, StepBoxes]]
        self._shared = {} if alike is None else alike._shared

    def of(self, sizes: tuple[int, ...]) -> StepBoxes:
        """The step with blocks of so many units of each dimension."""
        found = self._known.get(sizes)
        if found is None:
            found = self._known[sizes] = self._alike(sizes) or self._made(sizes)
            self._shared.setdefault(sizes, (self._nodes, found))
        return found

    def _alike(self, sizes: tuple[int, ...]) -> StepBoxes | None:
        """What a fusion that computes the same has worked out, where that names no node."""
        nodes, found = self._shared.get(sizes, (None, None))
        if nodes is None or found is None or found.has_starts:
            return None
        return found.of_equals(dict(zip(nodes, self._nodes, strict=True)))

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The sizes of blocks that are tried first, largest first."""
        return tuple(block_shapes(self.space, has_dot=self.body.dot is not None))

    @cached_property
    def orders(self) -> list[tuple[int, ...]]:
        """Grid orders: parallel dimensions outside; for a dot also columns before rows."""
        parallel = [i for i, d in enumerate(self.space.dims) if d.parallel]
        arbitrary = [i for i, d in enumerate(self.space.dims) if not d.parallel]
        orders = [tuple(parallel + arbitrary)]
        if self.body.dot is not None and len(parallel) >= 2:
            orders.append((*parallel[:-2], parallel[-1], parallel[-2], *arbitrary))
        return orders

    def _made(self, sizes: tuple[int, ...]) -> StepBoxes:
        body, space = self.body, self.space
        dims = tuple(
            grid_dim(f"g{i}", dim.unit, _covered(dim, size), size, parallel=dim.parallel)
            for i, (dim, size) in enumerate(zip(space.dims, sizes, strict=True))
        )
        extents = tuple(_extent(d, g) for d, g in zip(space.dims, dims, strict=True))
        step = Box(tuple(d.origin for d in dims), extents)
        roots = tuple(
            _root_box(space, step, root, numbers)
            for root, numbers in zip(body.roots, space.root_dims, strict=True)
        )
        depths = _depths(body, space, step)
        if self._leaf_boxes_of is not None:
            reads = self._leaf_boxes_of(roots)
        else:
            reads = leaf_boxes(body, roots, depths)
        return StepBoxes(dims, roots, depths, reads)


def _root_box(
    space: IterationSpace, step: Box, root: HloInstruction, numbers: tuple[int, ...]
) -> Box:
    """The part of a result that a step makes."""
    box = Box(tuple(step.low[d] for d in numbers), tuple(step.extent[d] for d in numbers))
    if not space.offsets:
        return box
    moved = tuple(low + by for low, by in zip(box.low, space.offsets, strict=True))
    return round_to_tiles(root.array, Box(moved, box.extent))


def _covered(dim: IterationDim, size: int) -> int:
    """Units that blocks of `size` go over: whole blocks, where the last one may end after the dimension."""
    return -(-dim.tiles // size) * size if dim.open_ended else dim.tiles


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
