"""Elements of a loop's state that the loop touches slice by slice, given another shape.

A view says how the array lies instead, and how a whole one or a slice goes in and comes out. The
loop then carries the array as it lies; slices are turned where they are read or written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from compiler.analysis.loop_invariants import state_reads
from compiler.hlo.call_graph import control_computations
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.shape import ArrayShape, TupleShape
from compiler.rewrite.graph import emit

Dims = tuple[int, ...]


class StackedView(Protocol):
    """Another shape of an array and of its slices along the first dimension."""

    def inward(self, value: HloInstruction) -> HloInstruction:
        """The whole array, or a slice of it, as it lies."""

    def outward(self, value: HloInstruction) -> HloInstruction:
        """What `inward` was given."""

    def sizes(self, sizes: Dims) -> Dims:
        """The sizes of a slice as it lies."""

    def starts(self, starts: Sequence[HloInstruction]) -> list[HloInstruction]:
        """The first indices of a slice as it lies."""


def is_only_caller(module: HloModule, caller: HloInstruction) -> bool:
    """Whether nothing else calls what a loop or a conditional calls; looks at the whole module."""
    called = set(caller.called_computations())
    instrs = (i for c in control_computations(module) for i in c)
    return [i for i in instrs if not called.isdisjoint(i.called_computations())] == [caller]


def is_stacked(loop: HloInstruction, index: int) -> bool:
    """Whether the loop touches the element by whole slices only."""
    body, condition = loop.body, loop.condition
    ends = (loop, body.parameters[0], condition.parameters[0])
    others = [user for end in ends for user in end.users]
    if any(u.opcode != "get-tuple-element" for u in others) or state_reads(condition, index):
        return False
    if loop.computation is not None and loop.computation.root is loop:
        return False
    root, held = body.root_instruction, state_reads(body, index)
    for value in held:  # grows
        for user in value.users:
            if user is root:
                if [i for i, o in enumerate(root.operands) if o is value] != [index]:
                    return False
            elif not _takes_slices(user, value):
                return False
            elif user.opcode == "dynamic-update-slice" and user not in held:
                held.append(user)
    return root.operands[index] in held


def longest_slice(loop: HloInstruction, index: int) -> int:
    """Most positions of the first dimension that a slice of a stacked element has."""
    held, longest = state_reads(loop.body, index), 0
    for value in held:  # grows
        for user in value.users:
            if user.opcode == "dynamic-slice":
                longest = max(longest, user.array.dims[0])
            elif user.opcode == "dynamic-update-slice":
                longest = max(longest, user.operands[1].array.dims[0])
                if user not in held:
                    held.append(user)
    return longest


def _takes_slices(user: HloInstruction, value: HloInstruction) -> bool:
    """Whether a user reads or replaces whole slices of a value, and nothing else of it."""
    if user.operands.count(value) != 1 or user.operands[0] is not value:
        return False
    if user.opcode == "dynamic-slice":
        return user.array.dims[1:] == value.array.dims[1:]
    if user.opcode == "dynamic-update-slice":
        return user.operands[1].array.dims[1:] == value.array.dims[1:]
    return False


def carry(loop: HloInstruction, index: int, value: HloInstruction) -> ArrayShape:
    """Carry an array of another shape as element `index` of the state: the shape of the state follows
    everywhere. What reads the element, or makes it, is the caller's to change. Returns the array's."""
    start, new = loop.operands[0], value.array
    values = list(start.operands)
    values[index] = value
    assert isinstance(loop.shape, TupleShape)
    parts = list(loop.shape.elements)
    parts[index] = new
    shape = TupleShape(tuple(parts))
    loop.set_operands([emit(loop, "tuple", shape, values)])
    if not start.users and start.computation is not None:
        start.computation.remove(start)
    for owner in (loop.body, loop.condition):
        owner.parameters[0].shape = shape
    loop.body.root_instruction.shape = loop.shape = shape
    return new


def restate(loop: HloInstruction, index: int, view: StackedView) -> None:
    """Carry element `index` of the state, which is stacked, as the view has it."""
    body = loop.body
    new = carry(loop, index, view.inward(loop.operands[0].operands[index]))
    held = state_reads(body, index)
    for value in held:  # grows
        value.shape = new
        for user in list(value.users):
            if user.opcode == "dynamic-slice":
                _read(user, value, view)
            elif user.opcode == "dynamic-update-slice" and user not in held:
                _write(user, view)
                held.append(user)
    for result in list(loop.users):
        if result.index == index:
            users = list(result.users)
            is_root = loop.computation is not None and loop.computation.root is result
            result.shape = new
            apart = view.outward(result)
            for user in users:
                user.set_operands([apart if o is result else o for o in user.operands])
            if is_root and loop.computation is not None:
                loop.computation.root = apart


def _read(user: HloInstruction, value: HloInstruction, view: StackedView) -> None:
    sizes = view.sizes(user.array.dims)
    attrs = {**user.attrs, "dynamic_slice_sizes": sizes}
    shape = user.array.with_layout(None).with_dims(sizes)
    starts = view.starts(user.operands[1:])
    made = emit(user, "dynamic-slice", shape, (value, *starts), attrs)
    user.replace_all_uses_with(view.outward(made))
    user.home.remove(user)


def _write(user: HloInstruction, view: StackedView) -> None:
    operand, update, *starts = user.operands
    user.set_operands([operand, view.inward(update), *view.starts(starts)])
