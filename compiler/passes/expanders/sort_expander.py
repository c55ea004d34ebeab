"""Sort expander: a bitonic merge network of whole-array compare-and-exchange stages.

The sorted dimension is seen as the middle one of ``[outer, n, inner]``, padded to a power of
two. Merging sorted blocks of j elements first compares i with its mirror image in the block of
2j (``i ^ (2j - 1)``), then with ``i ^ (j/2)``, ``i ^ (j/4)`` .. ``i ^ 1``. All exchanges put the
earlier element at the lower place, so what is padded at the end never has to move.

Equal elements keep their order: the position each had travels along as one more operand.
Short dimensions of few arrays have all stages one after another; else a loop picks its stage from
a table, so that the program grows with log n, not with its square. The loop is one kernel where its
state fits VMEM; what is larger is sorted by parts that do (`sort_parts`).
"""

from __future__ import annotations

import math

from compiler.analysis import vmem_shares
from compiler.hlo.dtypes import PRED, S32
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.passes.context import PassContext
from compiler.passes.expanders.driver import expand
from compiler.passes.expanders.sort_parts import SortParts, SortStage, is_unrolled, partner
from compiler.rewrite.emitter import Emitter, Step, result_of

Instr = HloInstruction


def expand_sorts(module: HloModule, context: PassContext) -> bool:
    """Expand every sort."""
    room = int(vmem_shares.SORTED_PARTS * context.chip.vmem_bytes)
    return expand(module, context, {"sort": lambda instr: expand_sort(instr, room)})


def expand_sort(instr: Instr, room: int) -> Instr | None:
    """The sorted operands; parts of at most `room` bytes are sorted at a time."""
    (dim,) = instr.dimensions
    if 0 in instr.operands[0].array.dims:
        return result_of(Emitter.at(instr), instr, instr.operands)
    comparator = instr.to_apply
    e = Emitter.at(instr)
    network = _Network(instr, dim, comparator)
    return result_of(e, instr, network.sorted(e, room))


class _Network:
    """The network of one sort."""

    def __init__(self, instr: Instr, dim: int, comparator: HloComputation) -> None:
        self.operands = instr.operands
        self.comparator = comparator
        self.is_order_free = _is_order_free(instr, comparator)
        dims = instr.operands[0].array.dims
        self.dims = dims
        self.count = dims[dim]
        self.padded = 1 << max(self.count - 1, 0).bit_length()
        outer, inner = math.prod(dims[:dim]), math.prod(dims[dim + 1 :])
        self.major = (outer,) if outer > 1 else ()
        self.minor = (inner,) if inner > 1 else ()  # a minor dimension of 1 would be padded
        self.axis = len(self.major)
        self.box = (*self.major, self.padded, *self.minor)

    def sorted(self, e: Emitter, room: int) -> list[Instr]:
        """Pad, run all stages, cut."""
        view = (*self.major, self.count, *self.minor)
        state = [
            e.pad_dim(e.shaped(operand, view), self.axis, 0, self.padded - self.count)
            for operand in self.operands
        ]
        if not self.is_order_free:
            state.append(e.positions(self.box, self.axis))
        parts = SortParts(self.axis, room, self.run)
        state = parts.sorted(e, state)[: len(self.operands)]
        return [e.shaped(e.part(value, self.axis, 0, self.count), self.dims) for value in state]

    def run(
        self, e: Emitter, state: list[Instr], axis: int, plan: list[SortStage], first: Instr | None
    ) -> list[Instr]:
        """The stages of `plan` on a part of the box, which begins at place `first` of the axis."""
        if self.padded == self.count:
            first = None  # no place is beyond the end
        if is_unrolled(len(plan), len(state)):
            for stage in plan:
                state = self.exchange(e, state, axis, stage, first)
            return state
        return self._looped(e, state, axis, plan, first)

    def _looped(
        self, e: Emitter, state: list[Instr], axis: int, plan: list[SortStage], first: Instr | None
    ) -> list[Instr]:
        kinds = list(dict.fromkeys(plan))
        order = e.table(S32, [kinds.index(stage) for stage in plan])
        begin = [] if first is None else [first]

        def step(b: Emitter, i: Instr, values: list[Instr]) -> list[Instr]:
            table, *rest = values
            picked = b.reshape(b.dynamic_slice(table, (i,), (1,)), ())
            branches = [_branch(self, axis, stage, len(begin)) for stage in kinds]
            return [table, *b.choose(picked, rest, branches)]

        return e.loop(len(plan), [order, *begin, *state], step)[1 + len(begin) :]

    def exchange(
        self, e: Emitter, state: list[Instr], axis: int, stage: SortStage, first: Instr | None
    ) -> list[Instr]:
        """Every element takes its partner's place or keeps its own."""
        others = [partner(e, value, axis, stage) for value in state]
        box = state[0].array.dims
        place = e.positions(box, axis)
        is_lower = e.compare_to(e.and_(place, e.like(place, stage.distance)), 0, "EQ")
        takes = e.compare(self._goes_first(e, others, state), is_lower, "EQ")
        if self.padded != self.count:
            reach = e.like(place, 2 * stage.distance - 1 if stage.is_mirror else stage.distance)
            higher = e.maximum(place, e.binary("xor", place, reach))
            end = e.constant(S32, self.count)
            if first is not None:
                end = e.subtract(end, first)
            takes = e.and_(takes, e.compare(higher, e.broadcast(end, box, ()), "LT"))
        return [e.select(takes, o, mine) for o, mine in zip(others, state, strict=True)]

    def _goes_first(self, e: Emitter, others: list[Instr], mine: list[Instr]) -> Instr:
        """Whether the partner comes before the element in the sorted order."""
        keys = range(len(self.operands))
        forward = [v for k in keys for v in (others[k], mine[k])]
        (is_less,) = e.apply(self.comparator, forward)
        if self.is_order_free:
            # equal elements are the same, so it does not matter that both of a pair stay
            return is_less
        backward = [v for k in keys for v in (mine[k], others[k])]
        (is_more,) = e.apply(self.comparator, backward)
        is_tie = e.compare(is_less, is_more, "EQ")
        came_first = e.compare(others[-1], mine[-1], "LT")
        return e.select(is_tie, came_first, is_less)


def _branch(network: _Network, axis: int, stage: SortStage, begins: int) -> Step:
    def step(e: Emitter, _: Instr, state: list[Instr]) -> list[Instr]:
        first = state[0] if begins else None
        return [*state[:begins], *network.exchange(e, state[begins:], axis, stage, first)]

    return step


def _is_order_free(instr: Instr, comparator: HloComputation) -> bool:
    """Whether elements that compare equal have equal bits, so that no order is to be kept."""
    root = comparator.root_instruction
    if len(instr.operands) != 1 or root.opcode != "compare":
        return False
    if set(root.operands) != set(comparator.parameters):
        return False
    dtype = instr.operands[0].array.dtype
    is_exact = dtype.is_integer or dtype == PRED or root.is_total_order
    return is_exact and root.attrs.get("direction") in ("LT", "GT")
