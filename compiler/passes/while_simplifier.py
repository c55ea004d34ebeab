"""While simplifier: what is known about a loop before it runs.

A scalar constant that a loop carries without changing is used directly by its body and
condition. A loop that counts from one constant to another gets its trip count as
``backend_config={"known_trip_count":{"n":"24"}}``, as in XLA.
"""

from __future__ import annotations

from compiler.analysis.call_graph import control_computations
from compiler.analysis.trip_count import note_trip_count, trip_count
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.shape import ArrayShape
from compiler.passes.context import PassContext
from compiler.passes.control_unsharing import unshare
from compiler.rewrite.graph import clone, remove_dead


def simplify_whiles(module: HloModule, context: PassContext) -> bool:
    """Simplify and annotate all loops, each of which gets a body and a condition of its own."""
    unshared = unshare(module)
    for computation in control_computations(module):
        for instr in list(computation):
            if instr.opcode != "while" or instr.operands[0].opcode != "tuple":
                continue
            context.counts["constants"] += _propagate_constants(instr)
            count = trip_count(instr)
            if count is not None and note_trip_count(instr, count):
                context.counts["trip counts"] += 1
    return bool(unshared or context.counts["constants"] or context.counts["trip counts"])


def _parts(loop: HloInstruction) -> tuple[HloComputation, HloComputation, list[HloInstruction]]:
    condition, body = loop.attrs["condition"], loop.attrs["body"]
    assert isinstance(condition, HloComputation)
    assert isinstance(body, HloComputation)
    return condition, body, loop.operands[0].operands


def _elements(computation: HloComputation, index: int) -> list[HloInstruction]:
    return [
        user
        for user in computation.parameters[0].users
        if user.opcode == "get-tuple-element" and user.attrs["index"] == index
    ]


def _is_invariant(body: HloComputation, index: int) -> bool:
    root = body.root_instruction
    return root.opcode == "tuple" and root.operands[index] in _elements(body, index)


def _propagate_constants(loop: HloInstruction) -> int:
    condition, body, initial = _parts(loop)
    replaced = 0
    for index, value in enumerate(initial):
        is_scalar = isinstance(value.shape, ArrayShape) and not value.shape.dims
        if value.opcode != "constant" or not is_scalar or not _is_invariant(body, index):
            continue
        kept = body.root_instruction.operands[index]
        for computation in (condition, body):
            for element in _elements(computation, index):
                users = [u for u in element.users if u is not body.root]
                if not users:
                    continue
                constant = clone(value, computation, ())
                for user in users:
                    user.set_operands([constant if o is element else o for o in user.operands])
                replaced += 1
                if element is not kept:
                    remove_dead(element)
            computation.sort()
    return replaced
