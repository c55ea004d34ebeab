"""Stacked updates: what a loop updates of a slice, it updates in the whole stack.

    s = dynamic-slice(x, i), t = scatter(s, places, new)      x = scatter(x, (i, places), new)
    y = dynamic-update-slice(y, t, i)                    ->   t = dynamic-slice(x, i), for those who read it

A scan over layers that updates a cache reads the cache of a layer and stacks the updated one: both are whole
copies of it, though a token changes a few rows. Where a loop goes over all slices in turn, the stack
that it reads and the one that it makes are one: what is not written yet is what will be read.

Left as it is: a slice that something reads before its update, or that is more than updated (then what
reads it may well make the new one on the way).
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.analysis.loop_invariants import state_reads
from compiler.analysis.scatter_dims import scatter_dims
from compiler.analysis.trip_count import counts_up, trip_count
from compiler.hlo.call_graph import control_computations
from compiler.hlo.dtypes import S32
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.passes.context import PassContext
from compiler.passes.loop_state import drop_unused
from compiler.passes.stacked_view import is_only_caller
from compiler.rewrite import make
from compiler.rewrite.graph import emit, remove_dead
from compiler.rewrite.pattern import splat_value


@dataclass(frozen=True)
class _Stack:
    """Element `made` of a loop's state, of which `store` replaces slice `counter`: with slice `counter` of
    element `read`, `slice`, after `updates`, the first one first."""

    loop: HloInstruction
    made: int
    read: int
    counter: HloInstruction
    slice: HloInstruction
    updates: tuple[HloInstruction, ...]
    store: HloInstruction


def update_stacks(module: HloModule, context: PassContext) -> bool:
    """Update stacks in place in all loops that go over them."""
    for computation in control_computations(module):
        for loop in [i for i in computation if i.opcode == "while"]:
            if loop.operands[0].opcode != "tuple" or not is_only_caller(module, loop):
                continue
            found = _update_stacks(loop)
            if found:
                drop_unused(loop)  # stacks that are read in the place of the one that is made
            context.counts["stacks"] += found
    return bool(context.counts["stacks"])


def _update_stacks(loop: HloInstruction) -> int:
    """Rewrite what one loop stacks; return how many stacks."""
    root, count = loop.body.root_instruction, 0
    for index in range(len(root.operands) if root.opcode == "tuple" else 0):
        stack = _stack(loop, index)
        if stack is not None:
            _rewrite(stack)
            count += 1
    return count


def _stack(loop: HloInstruction, made: int) -> _Stack | None:
    body = loop.body
    store = body.root_instruction.operands[made]
    held = state_reads(body, made)
    if store.opcode != "dynamic-update-slice" or store.operands[0] not in held:
        return None
    counter = _slice_number(store, store.operands[1])
    if counter is None or not _goes_over(loop, counter, store.array.dims[0]):
        return None
    found = _updates(store.operands[1], store)
    if found is None or list(store.users) != [body.root_instruction]:
        return None
    piece, updates = found
    source = piece.operands[0]
    is_same_slice = _slice_number(piece, piece) is counter
    if not is_same_slice or source.opcode != "get-tuple-element" or source.array != store.array:
        return None
    if any(u.opcode == "scatter" and u.array.rank == store.array.rank for u in updates):
        return None
    stack = _Stack(loop, made, source.index, counter, piece, updates, store)
    return stack if _is_free(stack) else None


def _slice_number(access: HloInstruction, piece: HloInstruction) -> HloInstruction | None:
    """The first index of a read or write of `piece`, one whole slice of a stack; None if it is not one."""
    whole = access.operands[0].array.dims
    if len(whole) < 2 or piece.array.dims != (1, *whole[1:]):
        return None
    starts = list(access.operands)[-len(whole) :]
    return starts[0] if all(splat_value(s) == 0 for s in starts[1:]) else None


def _goes_over(loop: HloInstruction, counter: HloInstruction, count: int) -> bool:
    """Whether a scalar of the body goes over 0, 1, .. count - 1."""
    if counter.opcode != "get-tuple-element" or list(counter.operands) != [loop.body.parameters[0]]:
        return False
    return counts_up(loop, counter.index) and trip_count(loop) == count


def _updates(
    value: HloInstruction, user: HloInstruction
) -> tuple[HloInstruction, tuple[HloInstruction, ...]] | None:
    """The slice that `value` was before it was updated in place, and the updates; None if it is more. Nothing
    but `user` may read what is updated."""
    found: list[HloInstruction] = []
    while True:
        if found and (list(value.users) != [user] or user.operands.count(value) != 1):
            return None
        if value.opcode == "dynamic-slice":
            return (value, tuple(found)) if found else None
        if value.opcode == "reshape":
            inner = value.operands[0]
            apart = {value.array.dims, inner.array.dims}
            dims = min(apart, key=len)
            if apart != {dims, (1, *dims)}:
                return None
        elif _is_update(value):
            found.insert(0, value)
            inner = value.operands[0]
        else:
            return None
        user, value = value, inner


def _is_update(value: HloInstruction) -> bool:
    if value.opcode != "scatter":
        return value.opcode == "dynamic-update-slice"
    is_one = len(value.operands) == 3
    return is_one and value.operands[1].array.dtype.bits >= S32.bits


def _is_free(stack: _Stack) -> bool:
    """Whether nothing else of the loop reads either stack."""
    loop, root = stack.loop, stack.loop.body.root_instruction
    readers = [u for e in state_reads(loop.body, stack.read) for u in e.users]
    if stack.made == stack.read:
        return set(readers) == {stack.slice, stack.store} and not state_reads(
            loop.condition, stack.made
        )
    others = [u for e in state_reads(loop.body, stack.made) for u in e.users]
    if set(readers) != {stack.slice, root} or others != [stack.store]:
        return False
    handed_on = [i for i, o in enumerate(root.operands) if o is stack.slice.operands[0]]
    held = [*state_reads(loop.condition, stack.made), *state_reads(loop.condition, stack.read)]
    return handed_on == [stack.read] and not held


def _rewrite(stack: _Stack) -> None:
    body, store = stack.loop.body, stack.store
    if stack.made != stack.read:
        start = stack.loop.operands[0]
        values = list(start.operands)
        values[stack.made] = values[stack.read]
        stack.loop.set_operands([emit(stack.loop, "tuple", start.shape, values)])
        remove_dead(start)
    whole = store.operands[0]
    for update in stack.updates:
        whole = _of_stack(update, whole, stack.counter)
    starts = store.operands[2:]
    sizes = (1, *whole.array.dims[1:])
    last = stack.updates[-1]
    attrs: dict[str, object] = {"dynamic_slice_sizes": sizes}
    shape = whole.array.with_dims(sizes)
    piece = emit(store, "dynamic-slice", shape, (whole, *starts), attrs)
    last.replace_all_uses_with(make.reshape(piece, last.array.dims))
    store.replace_all_uses_with(whole)
    remove_dead(store)
    remove_dead(last)
    body.sort()
    if stack.loop.computation is not None:
        stack.loop.computation.sort()


def _of_stack(
    update: HloInstruction, whole: HloInstruction, counter: HloInstruction
) -> HloInstruction:
    """An update of slice `counter` of `whole`, which may lack the dimension that numbers slices."""
    old, new, *others = update.operands
    lacks = old.array.rank < whole.array.rank
    if update.opcode == "dynamic-update-slice":
        if not lacks:
            starts = [counter, *others[1:]]
        else:
            new = make.reshape(new, (1, *new.array.dims))
            starts = [make.convert(counter, others[0].array.dtype) if others else counter, *others]
        return emit(update, "dynamic-update-slice", whole.array, (whole, new, *starts))
    return _scatter_of_stack(update, whole, counter)


def _scatter_of_stack(
    update: HloInstruction, whole: HloInstruction, counter: HloInstruction
) -> HloInstruction:
    d = scatter_dims(update)
    indices, place = d.indices, d.vector_dim
    if place == indices.array.rank:  # vectors of one component
        indices = make.reshape(indices, (*indices.array.dims, 1))
    shape = indices.array
    number = make.convert(counter, shape.dtype)
    numbers = make.broadcast(number, (*shape.dims[:place], 1, *shape.dims[place + 1 :]), ())
    joined = shape.with_dims((*shape.dims[:place], d.components + 1, *shape.dims[place + 1 :]))
    parts = (numbers, indices) if d.components else (numbers,)
    indices = emit(update, "concatenate", joined, parts, {"dimensions": (place,)})
    attrs = dict(update.attrs)
    attrs["inserted_window_dims"] = (0, *(i + 1 for i in d.inserted))
    attrs["scatter_dims_to_operand_dims"] = (0, *(i + 1 for i in d.index_map))
    if d.operand_batch:
        attrs["input_batching_dims"] = tuple(i + 1 for i in d.operand_batch)
    return emit(update, "scatter", whole.array, (whole, indices, d.updates), attrs)
