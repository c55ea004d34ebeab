"""From a fusion's body and windows to its `KernelPlan`: every decision about stages and scratch.

scratch.<node>        what a stage leaves for later ones
sums.<node>           partial results over grid steps, where windows cannot hold them
bf16.<part>.<node>    a dot operand made ready for the MXU
reduced.<node>        a reduce's results before they are packed or turned
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from compiler.analysis.boxes import dot_operand_boxes, feeds_mxu, is_row_reduction
from compiler.analysis.dot_parts import DotParts, pair_depth
from compiler.analysis.fusion_body import FusionBody
from compiler.analysis.indexing_boxes import Box
from compiler.analysis.row_chain import RowChain
from compiler.analysis.windows import OperandWindow, WindowPlan
from compiler.diagnostics import CompileError
from compiler.hlo.dtypes import BF16, F32, S32, U16
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape, leaves
from compiler.kernels.plan import (
    ChainStage,
    KernelPlan,
    MatmulOperand,
    MatmulStage,
    ReduceStage,
    RootStage,
    Scratch,
    Stage,
    StoredStage,
    Target,
)
from compiler.kernels.stage_leaves import leaves_packing
from tpu_sim.isa.geometry import LANES, SUBLANES, UNIT_DIM

_MOST_PACKED = 4
"""Elements of the narrowest type in a word."""
_STRAIGHT_TILES = 4
"""Of reduced tiles so many are gone over by straight-line code for all rows of a transposed block."""
MOST_ROW_TILES = 16
"""Registers for the rows of one array in a chain: a quarter of a file, for two blocks must be under way."""


def kernel_plan(body: FusionBody, windows: WindowPlan, parts: DotParts) -> KernelPlan:
    """The plan of a kernel with these windows. Raises CompileError for a reduce that the grid cuts
    although the fusion reads it."""
    return KernelPlan(body, windows, parts, _Planning(body, windows, parts).stages())


class _Planning:
    """One kernel; `held` is what lies in VMEM at this point, with the box of it that is there."""

    def __init__(self, body: FusionBody, plan: WindowPlan, parts: DotParts) -> None:
        self.body = body
        self.plan = plan
        self.parts = parts
        self.done: set[int] = set()
        dense = [w for w in plan.inputs if w.is_dense]
        self.held = {w.node: (w.shape, Box(w.origin, w.extent)) for w in dense}

    def stages(self) -> tuple[Stage, ...]:
        dot = self.body.dot
        first = [dot] if dot is not None and dot in self.plan.depths else []
        order = (*first, *(n for n in self.body.materialised if n not in first))
        chain = self.body.chain
        if chain is not None and self._can_chain(chain):
            before = [n for n in order if n not in chain.members and n not in chain.after]
            found = [self._stage(n) for n in before]
            found.append(self._chain(chain))
            found += [self._stage(n) for n in order if n in chain.after]
        else:
            found = [self._stage(n) for n in order]
        return (*found, *self._roots())

    def _stage(self, node: HloInstruction) -> Stage:
        """The stage of a materialised node by itself."""
        if node.opcode == "reduce":
            return self._reduce(node)
        if node.opcode == "dot":
            return self._matmul(node)
        return StoredStage(node, self._left(f"scratch.{node.name}", node, node.array))

    def _can_chain(self, chain: RowChain) -> bool:
        """Whether a step has whole rows, the same ones of all that is in a chain, and registers for one."""
        is_cut = any(n in self.plan.depths for n in chain.members)
        tiles = -(-chain.dims[-1] // LANES) * self._chain_packing(chain)
        return not is_cut and tiles <= MOST_ROW_TILES and self._chain_rows(chain) is not None

    def _chain_rows(self, chain: RowChain) -> Box | None:
        """The rows that a step makes of a chain's results and of what it leaves; None if they differ,
        or are not whole."""
        windows = [self.plan.outputs[i] for i in self._chain_outputs(chain)]
        boxes = [Box(w.origin, w.extent) for w in windows]
        boxes += [self.plan.boxes[node] for node in chain.left]
        *kept, whole = chain.dims
        rank = len(kept)
        if any(box.extent[rank:] not in ((), (whole,)) for box in boxes):
            return None
        rows = {Box(box.low[:rank], box.extent[:rank]) for box in boxes}
        return rows.pop() if len(rows) == 1 else None

    def _chain_outputs(self, chain: RowChain) -> list[int]:
        return [i for i, root in enumerate(self.body.roots) if root in chain.roots]

    def _chain_packing(self, chain: RowChain) -> int:
        """Phases of a row: the largest packing of what is read, made and left for others."""
        made = [self.plan.outputs[i].shape.dtype.packing for i in self._chain_outputs(chain)]
        made += [node.array.dtype.packing for node in chain.left]
        nodes = [*chain.roots, *(n.operands[0] for n in chain.members if n.opcode == "reduce")]
        return max(*made, leaves_packing(nodes, self._bound()), 1)

    def _chain(self, chain: RowChain) -> Stage:
        box = self._chain_rows(chain)
        assert box is not None
        outputs = tuple(self._chain_outputs(chain))
        self.done.update(outputs)
        packing = self._chain_packing(chain)
        targets: list[Scratch | None] = []
        for node in chain.members:
            is_row = node.opcode == "reduce"
            name = f"scratch.{node.name}"
            left = node in chain.left
            scratch = self._left(name, node, node.array, is_replicated=is_row) if left else None
            targets.append(scratch)
        return ChainStage(
            chain.members, tuple(targets), outputs, box.low, box.extent, chain.dims[-1], packing
        )

    def _roots(self) -> list[Stage]:
        groups: dict[tuple[object, ...], list[int]] = {}
        for number, window in enumerate(self.plan.outputs):
            if number not in self.done:
                key = (window.shape.dims, window.origin, window.extent)
                groups.setdefault(key, []).append(number)
        return [RootStage(tuple(group)) for group in groups.values()]

    def _direct(self, nodes: Sequence[HloInstruction]) -> list[int] | None:
        """The output windows that take results as they come: of `_roots_alone`, with whole tiles."""
        found = self._roots_alone(nodes)
        is_dense = found is not None and all(self.plan.outputs[i].is_dense for i in found)
        return found if is_dense else None

    def _roots_alone(self, nodes: Sequence[HloInstruction]) -> list[int] | None:
        """The output windows of results when each is a root that nothing else reads."""
        found: list[int] = []
        for node in nodes:
            places = [i for i, root in enumerate(self.body.roots) if root is node]
            is_read = any(user.opcode != "tuple" for user in node.users)
            if len(places) != 1 or is_read:
                return None
            found.append(places[0])
        return found

    def _left(
        self, name: str, node: HloInstruction, shape: ArrayShape, *, is_replicated: bool = False
    ) -> Scratch:
        """Scratch for the step's box of a node, which later stages read there."""
        box = self.plan.boxes[node]
        self.held[node] = (shape, box)
        return Scratch(name, shape, box.low, box.extent, is_replicated)

    def _reduce(self, node: HloInstruction) -> Stage:
        """A reduce goes to its output windows if roots are all that reads it, else to scratch."""
        packing = self._packing(node)
        results = result_nodes(node)
        places = self._direct(results)
        is_cut = node in self.plan.depths and any(
            d.steps > 1 and not d.parallel for d in self.plan.grid
        )
        targets: list[Target]
        if places is not None and not (is_cut and not self._take_sums(node, places)):
            self.done.update(places)
            targets = list(places)
        elif is_cut:
            targets = list(self._sums(node, results))
        else:
            box = self.plan.boxes[next(r for r in results if r in self.plan.boxes)]
            is_row = is_row_reduction(node)
            shapes = leaves(node.shape)
            targets = [
                Scratch(f"scratch.{node.name}", s, box.low, box.extent, is_row and s.rank > 0)
                for s in shapes
            ]
            self.held.update((r, (s, box)) for r, s in zip(results, shapes, strict=True))
        found = [
            None if is_cut else self._turned(node, result, target, packing)
            for result, target in zip(results, targets, strict=True)
        ]
        tiles = state_tiles(node, len(results))
        return ReduceStage(node, tuple(results), tuple(targets), tuple(found), tiles, is_cut)

    def _packing(self, reduce: HloInstruction) -> int:
        """How many elements to a word the stage of a reduce reads."""
        return leaves_packing(reduce.operands[: len(reduce.operands) // 2], self._bound())

    def _bound(self) -> dict[HloInstruction, ArrayShape]:
        """What lies in VMEM, by the nodes that it stands for."""
        bound = {window.node: window.shape for window in self.plan.inputs}
        bound.update((node, shape) for node, (shape, _) in self.held.items())
        return bound

    def _take_sums(self, node: HloInstruction, places: Sequence[int]) -> bool:
        """Whether output windows have the arrangement that partial results come in."""
        shapes = [self.plan.outputs[i].shape for i in places]
        return all(s.dtype.packing == 1 and (kept(node)[1] or s.rank == 0) for s in shapes)

    def _sums(self, node: HloInstruction, results: Sequence[HloInstruction]) -> list[Scratch]:
        """Scratch for the partial results of a cut reduce; what nothing takes is held as well."""
        taken = [r for r in results if r.users or any(r is root for root in self.body.roots)]
        places = self._roots_alone(taken)
        if not places:
            raise CompileError(
                f"internal: %{node.name}: a reduce cut by the grid is read in its fusion", node.span
            )
        window = self.plan.outputs[places[0]]
        box = Box(window.origin, window.extent)
        sums = [wide(f"sums.{r.name}", node, r.array, box) for r in results]
        self.held.update((r, (s.shape, box)) for r, s in zip(results, sums, strict=True))
        return sums

    def _turned(
        self, node: HloInstruction, result: HloInstruction, target: Target, packing: int
    ) -> Scratch | None:
        if isinstance(target, Scratch):
            shape, box = target.shape, Box(target.low, target.extent)
            is_replicated = target.is_replicated
        else:
            window = self.plan.outputs[target]
            shape, box = window.shape, Box(window.origin, window.extent)
            is_replicated = False
        return turned(node, result, shape, box, is_replicated=is_replicated, packing=packing)

    def _matmul(self, dot: HloInstruction) -> Stage:
        box = self.plan.boxes[dot]
        boxes = dot_operand_boxes(dot, box, self.plan.depths.get(dot))
        operands = tuple([self._operand(dot, i, b) for i, b in enumerate(boxes)])
        target: Target
        places = self._direct([dot])
        if places is not None and self._is_whole(dot, self.plan.outputs[places[0]]):
            self.done.update(places)
            target = places[0]
        else:
            shape = ArrayShape(S32 if self.parts.integer else F32, dot.array.dims)
            target = self._left(f"scratch.{dot.name}", dot, shape)
        return MatmulStage(dot, operands, target, dot in self.plan.depths)

    def _is_whole(self, dot: HloInstruction, window: OperandWindow) -> bool:
        """Whether a window takes a dot's sums: of their type, of just the box that is computed."""
        is_box = Box(window.origin, window.extent) == self.plan.boxes[dot]
        return dot.array.dtype in (F32, S32) and is_box

    def _operand(self, dot: HloInstruction, number: int, box: Box) -> MatmulOperand:
        node, count = dot.operands[number], self.parts.of(number)
        held = self.held.get(node)
        if held is not None and count == 1 and held[1] == box and feeds_mxu(dot, number, *held):
            return MatmulOperand(box)
        shape, form = prepared_form(dot, number, self.parts, box)
        return MatmulOperand(
            box,
            tuple(
                Scratch(f"bf16.{part}.{node.name}", shape, form.low, form.extent)
                for part in range(count)
            ),
        )


def result_nodes(reduce: HloInstruction) -> list[HloInstruction]:
    """The nodes of a reduce's results: itself, or its tuple elements by number.

    A result of a variadic reduce that no get-tuple-element takes is stood in for by a free node.
    """
    if isinstance(reduce.shape, ArrayShape):
        return [reduce]
    found: dict[int, HloInstruction] = {}
    for user in reduce.users:
        index = user.attrs.get("index")
        if user.opcode == "get-tuple-element" and isinstance(index, int):
            found[index] = user
    return [
        found.get(n) or HloInstruction("parameter", f"{reduce.name}.{n}", shape)
        for n, shape in enumerate(leaves(reduce.shape))
    ]


def kept(reduce: HloInstruction) -> tuple[bool, bool]:
    """Whether the rows and the columns of the operand are kept."""
    rank = reduce.operands[0].array.rank
    reduced = reduce.dimensions
    return rank >= 2 and rank - 2 not in reduced, rank - 1 not in reduced


def state_tiles(reduce: HloInstruction, states: int) -> int:
    """Vreg tiles that hold the running states of a reduce's loop, of so many values each.

    Rows that are kept take a register for each phase, or for a transposed block of them each where
    what is reduced is so long that no straight-line code goes over it.
    """
    if not kept(reduce)[0]:
        return states
    return states * (UNIT_DIM // SUBLANES if is_long(reduce) else _MOST_PACKED)


def is_long(reduce: HloInstruction) -> bool:
    """Whether a loop may go over what is reduced for the rows of a whole transposed block."""
    dims = reduce.operands[0].array.dims
    last = len(dims) - 1
    tiles = (-(-dims[d] // LANES) if d == last else dims[d] for d in reduce.dimensions)
    return math.prod(tiles) > _STRAIGHT_TILES


def turned(
    reduce: HloInstruction,
    result: HloInstruction,
    shape: ArrayShape,
    box: Box,
    *,
    is_replicated: bool,
    packing: int,
) -> Scratch | None:
    """Scratch for a result that cannot be stored to its target as it comes, else None.

    The target holds `box` of an array of `shape`. Results over lanes come replicated, others do not.
    Rows that are kept come `packing` to a word, as the stage reads them, and must fill the target's
    words; others come one by one.
    """
    keeps_rows, keeps_columns = kept(reduce)
    fits_turn = is_replicated != keeps_columns or shape.rank == 0
    is_filled = packing % shape.dtype.packing == 0 and shape.dtype.kind != "pred"
    fits_type = is_filled if keeps_rows else shape.dtype.packing == 1
    return None if fits_turn and fits_type else wide(f"reduced.{result.name}", reduce, shape, box)


def wide(name: str, reduce: HloInstruction, shape: ArrayShape, box: Box) -> Scratch:
    """Scratch for a result in the arrangement and type that a reduce stage makes."""
    made = shape.with_dtype(F32 if shape.dtype.is_float else S32).with_layout(None)
    return Scratch(name, made, box.low, box.extent, not kept(reduce)[1] and made.rank > 0)


def prepared_form(
    dot: HloInstruction, number: int, parts: DotParts, box: Box
) -> tuple[ArrayShape, Box]:
    """What an operand is prepared as, and the box of that: bf16, or pairs of 8-bit integers."""
    dims = dot.operands[number].array.dims
    if not parts.integer:
        return ArrayShape(BF16, dims), box
    side = "rhs" if number else "lhs"
    (axis,) = dot.ints(f"{side}_contracting_dims")
    depth = pair_depth(dims[axis])
    extent = tuple(depth if d == axis else size for d, size in enumerate(box.extent))
    shape = ArrayShape(U16, tuple(depth if d == axis else size for d, size in enumerate(dims)))
    return shape, Box(box.low, extent)
