"""Stacked state: arrays that a loop reads or writes slice by slice lie in memory without padding.

    while state f32[512,256,12,4], one [1,256,12,4] of it a trip   ->   state f32[512,1,12288]

Tiles of 8x128 make 42 bytes of one where the last dimensions are small. A scan keeps whole stacks of
such slices, so that is where memory goes. What a slice is made of or read into keeps its dimensions;
a reshape stands between, which is index arithmetic of the kernel that makes or reads the slice.

Only the trailing dimensions of a slice are merged; the loop must touch the array by whole slices
alone. Arrays that come from outside the program stay what they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from compiler.analysis.tiled_layout import byte_size, unpadded_byte_size
from compiler.hlo.call_graph import control_computations
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import ArrayShape, TupleShape
from compiler.passes.context import PassContext
from compiler.rewrite import make
from compiler.rewrite.graph import emit

Dims = tuple[int, ...]
_LEAST_SHARE = 4  # of its size that an array must come down to
_LEAST_BYTES = 8 << 20  # and what that must save
_GOOD_PADDING = 2  # a merge that leaves so little need go no further


def compact_stacked_state(module: HloModule, context: PassContext) -> bool:
    """Merge trailing dimensions of the stacked state of all loops."""
    for computation in control_computations(module):
        changed = False
        for loop in [i for i in computation if i.opcode == "while"]:
            for index in _candidates(module, loop):
                dims = _compact(loop.operands[0].operands[index].array)
                assert dims is not None
                _merge(loop, index, dims)
                context.counts["arrays"] += 1
                changed = True
            if changed:
                loop.body.sort()
        if changed:
            computation.sort()
    return bool(context.counts["arrays"])


def _compact(shape: ArrayShape) -> Dims | None:
    """Dimensions with less padding, the first kept; None where it does not pay."""
    first, *rest = shape.dims if shape.rank > 2 else (1,)
    if not rest or 0 in rest:
        return None
    plain = unpadded_byte_size(shape)
    choices = [
        (first, math.prod(rest[:at]), math.prod(rest[at:])) for at in reversed(range(len(rest)))
    ]
    sizes = [byte_size(shape.with_layout(None).with_dims(dims)) for dims in choices]
    before, least = byte_size(shape.with_layout(None)), min(sizes)
    if before < _LEAST_SHARE * least or before - least < _LEAST_BYTES:
        return None
    good = [
        dims for dims, size in zip(choices, sizes, strict=True) if size <= _GOOD_PADDING * plain
    ]
    return good[0] if good else choices[sizes.index(least)]


def _candidates(module: HloModule, loop: HloInstruction) -> Iterator[int]:
    """Elements of a loop's state that can be merged and should be."""
    if loop.operands[0].opcode != "tuple" or loop.body.root_instruction.opcode != "tuple":
        return
    padded = [
        index
        for index, value in enumerate(loop.operands[0].operands)
        if isinstance(value.shape, ArrayShape) and not OPCODES[value.opcode].has(Trait.GIVEN)
        if _compact(value.array) is not None
    ]
    if not padded or not _is_only_caller(module, loop):
        return
    if any(u.opcode != "get-tuple-element" for u in loop.users):
        return
    for index in padded:
        if _is_stacked(loop, index):
            yield index


def _is_only_caller(module: HloModule, loop: HloInstruction) -> bool:
    """Whether nothing else calls what the loop calls; looks at the whole module."""
    called = {loop.body, loop.condition}
    instrs = (i for c in control_computations(module) for i in c)
    return [i for i in instrs if not called.isdisjoint(i.called_computations())] == [loop]


def _elements(computation: HloComputation, index: int) -> list[HloInstruction]:
    return [
        u
        for u in computation.parameters[0].users
        if u.opcode == "get-tuple-element" and u.index == index
    ]


def _is_stacked(loop: HloInstruction, index: int) -> bool:
    """Whether the loop touches the element by whole slices only."""
    body, condition = loop.body, loop.condition
    others = [*body.parameters[0].users, *condition.parameters[0].users]
    if any(u.opcode != "get-tuple-element" for u in others) or _elements(condition, index):
        return False
    root, held = body.root_instruction, _elements(body, index)
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


def _takes_slices(user: HloInstruction, value: HloInstruction) -> bool:
    """Whether a user reads or replaces whole slices of a value, and nothing else of it."""
    if user.operands.count(value) != 1 or user.operands[0] is not value:
        return False
    if user.opcode == "dynamic-slice":
        return user.array.dims[1:] == value.array.dims[1:]
    if user.opcode == "dynamic-update-slice":
        return user.operands[1].array.dims[1:] == value.array.dims[1:]
    return False


def _merge(loop: HloInstruction, index: int, dims: Dims) -> None:
    """Give element `index` of the state other trailing dimensions."""
    body, start = loop.body, loop.operands[0]
    old = start.operands[index].array
    new = old.with_layout(None).with_dims(dims)
    assert isinstance(loop.shape, TupleShape)
    parts = list(loop.shape.elements)
    parts[index] = new
    shape = TupleShape(tuple(parts))
    values = list(start.operands)
    values[index] = make.reshape(values[index], dims)
    loop.set_operands([emit(loop, "tuple", shape, values)])
    if not start.users and start.computation is not None:
        start.computation.remove(start)
    held = _elements(body, index)
    for value in held:  # grows
        value.shape = new
        for user in list(value.users):
            if user.opcode == "dynamic-slice":
                _read_merged(user, value, dims)
            elif user.opcode == "dynamic-update-slice" and user not in held:
                _write_merged(user, dims)
                held.append(user)
    for owner in (body, loop.condition):
        owner.parameters[0].shape = shape
    body.root_instruction.shape = loop.shape = shape
    for result in list(loop.users):
        if result.index == index:
            users = list(result.users)
            is_root = loop.computation is not None and loop.computation.root is result
            result.shape = new
            apart = make.reshape(result, old.dims)
            for user in users:
                user.set_operands([apart if o is result else o for o in user.operands])
            if is_root and loop.computation is not None:
                loop.computation.root = apart


def _starts(user: HloInstruction, first: int) -> list[HloInstruction]:
    """Start indices of a slice in merged dimensions."""
    start = user.operands[first]
    zero = make.constant(user, start.array.dtype, 0)
    return [start, zero, zero]


def _read_merged(user: HloInstruction, value: HloInstruction, dims: Dims) -> None:
    sizes = (user.array.dims[0], *dims[1:])
    attrs = {**user.attrs, "dynamic_slice_sizes": sizes}
    shape = user.array.with_layout(None).with_dims(sizes)
    made = emit(user, "dynamic-slice", shape, (value, *_starts(user, 1)), attrs)
    user.replace_all_uses_with(make.reshape(made, user.array.dims))
    assert user.computation is not None
    user.computation.remove(user)


def _write_merged(user: HloInstruction, dims: Dims) -> None:
    operand, update, *_ = user.operands
    merged = make.reshape(update, (update.array.dims[0], *dims[1:]))
    user.set_operands([operand, merged, *_starts(user, 2)])
