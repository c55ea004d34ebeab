"""Loop state: a loop carries what changes and what is used, no more.

A constant that a loop carries without changing it becomes a constant of its body and condition, as
if it had been written there. What only feeds itself, and is used neither after the loop nor for
deciding when it ends, is not carried. So it does not matter whether a frontend wrote values of
the outside where they are used (HLO's loops cannot) or carried them along.
"""

from __future__ import annotations

import numpy as np

from compiler.analysis.index_columns import counting
from compiler.analysis.loop_invariants import is_invariant, state_reads
from compiler.hlo.call_graph import control_computations
from compiler.hlo.cloning import clone
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import ArrayShape, TupleShape
from compiler.passes.context import PassContext
from compiler.passes.control_unsharing import unshare
from compiler.rewrite import make
from compiler.rewrite.graph import emit, has_side_effect, is_dead, remove_dead

Instr = HloInstruction

MAX_SUNK_ELEMENTS = 1024
"""A larger literal is carried: it would lie in memory once for each loop."""


def simplify_loop_state(module: HloModule, context: PassContext) -> bool:
    """Sink constants into loops, callers first, and drop what no loop needs, callees first."""
    unshared = unshare(module)
    context.counts["constants"] += sink_constants(module)
    computations = control_computations(module)
    for computation in computations:
        for loop in reversed(_loops(computation)):
            context.counts["dropped"] += drop_unused(loop)
    return bool(unshared or any(context.counts.values()))


def sink_constants(module: HloModule) -> int:
    """Constants that loops carry become their bodies' own; return how many uses were replaced.

    Loops share no computation; what they carry stays as it is.
    """
    computations = reversed(control_computations(module))
    return sum(_sink_constants(loop) for c in computations for loop in _loops(c))


def _loops(computation: HloComputation) -> list[Instr]:
    return [i for i in computation if i.opcode == "while" and i.operands[0].opcode == "tuple"]


def _parts(loop: Instr) -> tuple[HloComputation, HloComputation]:
    condition, body = loop.condition, loop.body
    return condition, body


# Constants.


def _sink_constants(loop: Instr) -> int:
    condition, body = _parts(loop)
    replaced = 0
    for index, value in enumerate(loop.operands[0].operands):
        if not _is_constant(value) or not is_invariant(body, index):
            continue
        kept = body.root_instruction.operands[index]
        for computation in (condition, body):
            for element in state_reads(computation, index):
                users = [user for user in element.users if user is not body.root]
                if users:
                    replaced += 1
                    constant = _copied(value, computation)
                    for user in users:
                        user.set_operands([constant if o is element else o for o in user.operands])
                if element is not kept:
                    remove_dead(element)
    if replaced:
        condition.sort()
        body.sort()
    return replaced


def _is_constant(value: Instr) -> bool:
    """Whether this is a small literal, integers that count, as the places of rows do, or an array made
    of such without memory."""
    if _takes_no_memory(value):
        return all(_is_constant(operand) for operand in value.operands)
    literal = value.attrs.get("literal")
    if isinstance(literal, np.ndarray):
        return literal.size <= MAX_SUNK_ELEMENTS
    return _counting(value) is not None


def _takes_no_memory(value: Instr) -> bool:
    return value.opcode == "reshape" or OPCODES[value.opcode].has(Trait.SYMBOLIC)


def _counting(value: Instr) -> tuple[int, int | None] | None:
    """The first of integers that count, and along which dimension, if any."""
    is_known = isinstance(value.shape, ArrayShape) and value.array.dtype.is_integer
    return counting(value) if is_known and value.array.element_count else None


def _copied(value: Instr, target: HloComputation) -> Instr:
    counted = None if "literal" in value.attrs or _takes_no_memory(value) else _counting(value)
    if counted is None:
        return clone(value, target, [_copied(operand, target) for operand in value.operands])
    first, along = counted
    near = target.parameters[0]
    start = make.splat(near, value.array, first)
    if along is None:
        return start
    numbers = emit(near, "iota", value.array, (), {"iota_dimension": along})
    return numbers if first == 0 else emit(near, "add", value.array, (numbers, start))


# Elements that are not used.


def drop_unused(loop: Instr) -> int:
    """Take the elements out of the state that nothing depends on; return how many values went."""
    if loop.computation is None:
        return 0
    condition, body = _parts(loop)
    ends = (loop, condition.parameters[0], body.parameters[0])
    if body.root_instruction.opcode != "tuple" or not all(map(_is_read_by_element, ends)):
        return 0
    removed = _use_initial_values(loop, body)
    removed += sum(remove_dead(user) for end in ends for user in list(end.users))
    if loop.computation is None:  # nobody used what it gives
        return removed
    wanted = _wanted(loop)
    count = len(loop.operands[0].operands)
    kept = [index for index in range(count) if wanted >> index & 1]
    if not kept or len(kept) == count:
        return removed
    old = body.root_instruction
    body.root = emit(old, "tuple", _kept_shape(old, kept), [old.operands[i] for i in kept])
    for computation in (body, condition):
        for instr in reversed(list(computation)):
            if instr.computation is computation:
                remove_dead(instr)
        computation.sort()
    initial = loop.operands[0]
    state = emit(initial, "tuple", _kept_shape(initial, kept), [initial.operands[i] for i in kept])
    loop.set_operands([state])
    remove_dead(initial)
    for end in ends:
        end.shape = state.shape
        end.attrs.pop("sharding", None)
        for user in end.users:
            user.attrs["index"] = kept.index(user.index)
    loop.home.sort()
    return removed + count - len(kept)


def _is_read_by_element(value: Instr) -> bool:
    """Whether a tuple is used one element at a time."""
    is_root = value.computation is not None and value.computation.root is value
    return not is_root and all(user.opcode == "get-tuple-element" for user in value.users)


def _kept_shape(whole: Instr, kept: list[int]) -> TupleShape:
    return TupleShape(tuple(whole.operands[index].shape for index in kept))


def _use_initial_values(loop: Instr, body: HloComputation) -> int:
    """What a loop leaves as it is has after it the value it had before."""
    found = [e for e in loop.users if is_invariant(body, e.index) and not is_dead(e)]
    for element in found:
        element.replace_all_uses_with(loop.operands[0].operands[element.index])
    return len(found)


def _wanted(loop: Instr) -> int:
    """The elements of the state that are needed, as bits of a number."""
    condition, body = _parts(loop)
    wanted = sum({1 << element.index for element in loop.users})
    wanted |= sum({1 << element.index for element in condition.parameters[0].users})
    depends = _dependences(body)
    for instr in body:
        if has_side_effect(instr) or OPCODES[instr.opcode].has(Trait.NONDETERMINISTIC):
            wanted |= depends[instr]
    results = body.root_instruction.operands
    before = None
    while before != wanted:
        before = wanted
        for index, result in enumerate(results):
            if wanted >> index & 1:
                wanted |= depends[result]
    return wanted


def _dependences(body: HloComputation) -> dict[Instr, int]:
    """The elements of the state that each value depends on, as bits of a number."""
    depends: dict[Instr, int] = {}
    for instr in body:
        if instr.opcode == "get-tuple-element" and instr.operands[0] is body.parameters[0]:
            depends[instr] = 1 << instr.index
            continue
        found = 0
        for operand in instr.operands:
            found |= depends[operand]
        depends[instr] = found
    return depends
