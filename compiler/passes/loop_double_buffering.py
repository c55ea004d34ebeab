"""Loop double buffering: a body that cannot write its new state over the old one runs twice a trip.

A stencil reads neighbours of what it writes, so that its result needs memory of its own, and at the
end of the body it is copied to where the state lies. Two bodies in a row need no copy: the first
writes into a second buffer, the other one back. Only loops with an even, known trip count.

Runs on fusions: before, the two bodies would be fused, and neighbours computed over and over.
"""

from __future__ import annotations

from compiler.analysis.aliasing import updated_operand
from compiler.analysis.in_place import blocks_are_disjoint, reads_in_place
from compiler.analysis.trip_count import note_trip_count, trip_count
from compiler.analysis.window_planner import WindowPlanner
from compiler.hlo.call_graph import control_computations, sort_computations
from compiler.hlo.cloning import clone, clone_computation
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.opcodes import Trait, with_trait
from compiler.hlo.shape import ArrayShape
from compiler.passes.context import PassContext
from compiler.rewrite.graph import remove_dead

LEAST_BYTES = 1 << 20  # of state that would be copied
MOST_INSTRUCTIONS = 100  # of a body
_INNER = with_trait(Trait.HANDS_STATE)


def double_buffer_loops(module: HloModule, context: PassContext) -> bool:
    """Double every body that would copy much state."""
    for computation in control_computations(module):
        for instr in list(computation):
            if instr.opcode == "while" and _is_worth_it(instr, context.planner):
                _double(instr, module)
                context.counts["doubled"] += 1
    if context.counts["doubled"]:
        sort_computations(module)
    return bool(context.counts["doubled"])


def _is_worth_it(loop: HloInstruction, planner: WindowPlanner) -> bool:
    count = trip_count(loop)
    body = loop.body
    instructions = list(body)
    if not count or count % 2 or len(instructions) > MOST_INSTRUCTIONS:
        return False
    if any(i.opcode in _INNER or i.control_predecessors() for i in instructions):
        return False
    root = body.root_instruction
    if root.opcode != "tuple" or len(loop.called_computations()) != 2:
        return False
    copied = 0
    for index, value in enumerate(root.operands):
        if isinstance(value.shape, ArrayShape) and _needs_copy(body, index, value, planner):
            copied += value.array.byte_count
    return copied >= LEAST_BYTES


def _needs_copy(
    body: HloComputation, index: int, value: HloInstruction, planner: WindowPlanner
) -> bool:
    """Whether the kernel that makes new state `value` reads the old one in places still to come."""
    writer = value.operands[0] if value.opcode == "get-tuple-element" else value
    if writer.opcode != "fusion" or updated_operand(writer) is not None:
        return False
    read = [n for n, o in enumerate(writer.operands) if _is_state(body, index, o)]
    if not read:
        return False
    in_place = all(reads_in_place(writer, n) for n in read)
    return not (in_place and blocks_are_disjoint(writer, planner))


def _is_state(body: HloComputation, index: int, node: HloInstruction) -> bool:
    is_element = node.opcode == "get-tuple-element" and node.index == index
    return is_element and node.operands[0] is body.parameters[0]


def _double(loop: HloInstruction, module: HloModule) -> None:
    """Append a second run of the body, which starts from the results of the first."""
    body = loop.body
    trips = trip_count(loop)
    assert trips is not None
    parameter, root = body.parameters[0], body.root_instruction
    made: dict[HloInstruction, HloInstruction] = {parameter: root}
    for instr in list(body):
        if instr.opcode == "get-tuple-element" and instr.operands[0] is parameter:
            made[instr] = root.operands[instr.index]
        elif instr is not parameter:
            made[instr] = clone(instr, body, [made[o] for o in instr.operands])
            called = instr.attrs.get("calls")
            if isinstance(called, HloComputation):
                made[instr].attrs["calls"] = clone_computation(called, module=module)
    body.root = made[root]
    remove_dead(root)
    body.sort()
    note_trip_count(loop, trips // 2)
