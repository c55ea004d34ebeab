"""Stacks that a loop goes over: arrays of its state of which every instruction touches one slab.

    x = f32[1,16,32] dynamic-slice(xs, i, 0, 0)            inside a fusion: one slab of xs is read
    ys = f32[8000,16,32] dynamic-update-slice(ys, y, i, 0, 0)    one slab of ys is written, in its place

A slab has the last two dimensions whole: whole tiles, wherever it begins. Such an array need not be in
VMEM with the rest of the loop: its slabs can come and go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from compiler.analysis.buffer_assignment import Allocation
from compiler.analysis.fusion_body import fusion_body
from compiler.analysis.indexing import Expr, const, var
from compiler.analysis.indexing_maps import start_variable
from compiler.analysis.kernel_vmem import GUARD_ROWS, held_rows
from compiler.analysis.tiled_layout import byte_size
from compiler.analysis.windows import OperandWindow
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.opcodes import Trait, with_trait
from compiler.hlo.shape import ArrayShape, leaves
from tpu_sim.isa.program import HBM

Leaf = tuple[ArrayShape, Allocation]
LeavesOf = Callable[[HloInstruction], Sequence[Leaf]]
_HANDS_ON = with_trait(Trait.CARRIES)
_BUFFERS, _SMALL_BUFFERS = 2, 4
"""Slabs of a stack that VMEM holds at once: the one in use and the next, of small ones more, as a trip
takes less time than a transfer then. Powers of two."""
_SMALL_SLAB_BYTES = 1 << 16
_MOST_SLAB_BYTES = 1 << 24
"""A ring of two of them is a quarter of v5e's VMEM. Up to here loops are faster in VMEM, where nothing is
launched and what a trip makes is not stored: slabs of 3 MB in the gradient of a random field 7.6 M cycles
in main and 2.3 M, of 6.6 MB in that of attention 12.5 M and 7.3 M (on v5e). Larger ones were not tried."""


@dataclass
class Stack:
    """One array of a loop's state, the operands as which fusions read a slab of it (a fusion and its
    parameter), and the fusions that write one."""

    shape: ArrayShape
    place: Allocation
    readers: list[tuple[HloInstruction, HloInstruction]] = field(default_factory=list)
    writers: list[HloInstruction] = field(default_factory=list)
    slab_rows: int = 0

    @property
    def rows(self) -> int:
        """Rows of VMEM that the whole array takes."""
        return held_rows(self.shape, self.shape.dims)

    @property
    def streamed_rows(self) -> int:
        """Rows that its slabs take at most."""
        users = len(self.readers) + len(self.writers)
        return users * (_SMALL_BUFFERS * self.slab_rows + GUARD_ROWS)


def streamed_stacks(
    state: Iterable[Leaf],
    computations: Iterable[HloComputation],
    leaves_of: LeavesOf,
    excess_rows: int,
) -> dict[int, Stack]:
    """The stacks that stay in HBM so that `excess_rows` less are needed, by their places, largest first;
    none where that is not enough."""
    if excess_rows <= 0:
        return {}
    found = _stacks(state, computations, leaves_of)
    chosen: dict[int, Stack] = {}
    for place, stack in sorted(found.items(), key=lambda pair: -pair[1].rows):
        saved = stack.rows - stack.streamed_rows
        if excess_rows > 0 and saved > 0:
            chosen[place] = stack
            excess_rows -= saved
    return chosen if excess_rows <= 0 else {}


def ring_buffers(shape: ArrayShape, extent: tuple[int, ...]) -> int:
    """Slabs of such an extent that a reader or a writer has room for."""
    size = byte_size(shape.with_dims(extent).with_layout(None))
    return _SMALL_BUFFERS if size <= _SMALL_SLAB_BYTES else _BUFFERS


def stack_leaves(loop: HloInstruction) -> set[int]:
    """Which arrays of a loop's state are stacks, before they have places."""
    state = loop.body.parameters[0]
    shapes = leaves(loop.shape)
    found = {
        n for n, shape in enumerate(shapes) if isinstance(shape, ArrayShape) and shape.rank >= 3
    }
    for computation in (loop.condition, loop.body):
        taken = [u for u in computation.parameters[0].users if u.opcode == "get-tuple-element"]
        for leaf in taken:
            if leaf.index in found and not _stays_stack(leaf, leaf.index, loop.body):
                found.discard(leaf.index)
    return found if all(u.opcode == "get-tuple-element" for u in state.users) else set()


def _stays_stack(value: HloInstruction, number: int, body: HloComputation) -> bool:
    """Whether of an element of the state only slabs are read or written until the body ends."""
    for user in value.users:
        if user is body.root and user.opcode == "tuple":
            if [n for n, o in enumerate(user.operands) if o is value] != [number]:
                return False
            continue
        if user.opcode != "fusion":
            return False
        written = written_window(user)
        for operand, parameter in zip(user.operands, user.calls.parameters, strict=True):
            if operand is not value:
                continue
            if written is not None and written.node is parameter:
                if not _stays_stack(user, number, body):
                    return False
            elif read_window(parameter) is None:
                return False
    return True


def read_window(parameter: HloInstruction) -> OperandWindow | None:
    """The slab that a fusion reads of an operand, if that is all it reads of it."""
    if len(parameter.users) != 1 or parameter is _root(parameter):
        return None
    (user,) = parameter.users
    if user.opcode != "dynamic-slice" or user.operands.count(parameter) != 1:
        return None
    return _window(user, parameter, user.array.dims)


def written_window(fusion: HloInstruction) -> OperandWindow | None:
    """The slab that a fusion writes of an operand in its place, if it is such an update."""
    root = fusion.calls.root_instruction
    if root.opcode != "dynamic-update-slice" or root.operands[0].opcode != "parameter":
        return None
    if fusion_body(fusion).materialised:
        return None
    target, update = root.operands[:2]
    if set(target.users) != {root} or target is update:
        return None
    return _window(root, target, update.array.dims)


def _root(parameter: HloInstruction) -> HloInstruction | None:
    computation = parameter.computation
    return None if computation is None else computation.root


def _window(
    instr: HloInstruction, parameter: HloInstruction, dims: tuple[int, ...]
) -> OperandWindow | None:
    whole = parameter.array.dims
    if len(dims) < 3 or dims[-2:] != whole[-2:]:
        return None
    if byte_size(parameter.array.with_dims(dims).with_layout(None)) > _MOST_SLAB_BYTES:
        return None
    origin: list[Expr] = [var(start_variable(instr, d)) for d in range(len(dims) - 2)]
    return OperandWindow(parameter, parameter.array, (*origin, const(0), const(0)), dims)


def _stacks(
    state: Iterable[Leaf], computations: Iterable[HloComputation], leaves_of: LeavesOf
) -> dict[int, Stack]:
    """All stacks of a loop, by their places in HBM."""
    found = {
        place.offset: Stack(shape, place)
        for shape, place in state
        if place.space == HBM and shape.rank >= 3
    }
    for computation in computations:
        for instr in computation:
            for offset in _misused(instr, found, leaves_of):
                found.pop(offset, None)
    return {offset: s for offset, s in found.items() if s.readers or s.writers}


def _misused(instr: HloInstruction, stacks: dict[int, Stack], leaves_of: LeavesOf) -> list[int]:
    """Places of stacks that an instruction uses otherwise; its own uses join the others."""
    results = list(leaves_of(instr))
    if instr.opcode in _HANDS_ON:
        return [
            place.offset
            for shape, place in results
            if place.space == HBM and not _is_alike(stacks.get(place.offset), shape)
        ]
    operands = [leaf for operand in instr.operands for leaf in leaves_of(operand)]
    if instr.opcode != "fusion" or len(operands) != len(instr.operands):
        return [place.offset for _, place in (*results, *operands) if place.space == HBM]
    written = written_window(instr)
    target = None if written is None else written.node
    others: list[int] = []
    for parameter, (shape, place) in zip(instr.calls.parameters, operands, strict=True):
        stack = stacks.get(place.offset) if place.space == HBM else None
        if stack is None:
            continue
        is_target = parameter is target and results[0][1].offset == place.offset
        window = written if is_target else read_window(parameter)
        if window is None or not _is_alike(stack, shape):
            others.append(place.offset)
            continue
        if is_target:
            stack.writers.append(instr)
        else:
            stack.readers.append((instr, parameter))
        stack.slab_rows = max(stack.slab_rows, held_rows(stack.shape, window.extent))
    in_place = {operands[n][1].offset for n, p in enumerate(instr.calls.parameters) if p is target}
    made = {place.offset for _, place in results if place.space == HBM}
    return [*others, *(made - in_place)]


def _is_alike(stack: Stack | None, shape: ArrayShape) -> bool:
    return stack is None or (stack.shape.dims, stack.shape.dtype) == (shape.dims, shape.dtype)
