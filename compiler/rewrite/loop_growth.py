"""Loops that carry one more value: from before the loop, through every turn, to behind it."""

from __future__ import annotations

from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import TupleShape
from compiler.rewrite.graph import emit


def can_grow(loop: HloInstruction) -> bool:
    """Whether a loop's state is made of tuples and read by elements, and nothing is bound to an order."""
    condition, body = loop.condition, loop.body
    ends = (loop, condition.parameters[0], body.parameters[0])
    is_plain = loop.operands[0].opcode == body.root_instruction.opcode == "tuple"
    is_read = all(u.opcode == "get-tuple-element" for end in ends for u in end.users)
    is_root = any(end.computation is not None and end.computation.root is end for end in ends)
    is_bound = any(i.control_predecessors() for i in (*body, *(loop.computation or ())))
    return is_plain and is_read and not is_root and not is_bound


def add_state(
    loop: HloInstruction, first: HloInstruction, following: HloInstruction
) -> HloInstruction:
    """Let a loop carry `first`, and `following` of its body from then on, as its last element.

    Returns the tuple that the loop starts from. It and the body's root stand at the end of their
    computations; those that they replace are there still.
    """
    initial, root = loop.operands[0], loop.body.root_instruction
    shape = TupleShape((*(value.shape for value in initial.operands), first.shape))
    state = emit(initial, "tuple", shape, [*initial.operands, first])
    loop.set_operands([state])
    loop.body.root = emit(root, "tuple", shape, [*root.operands, following])
    for end in (loop, loop.condition.parameters[0], loop.body.parameters[0]):
        end.shape = shape
    return state
