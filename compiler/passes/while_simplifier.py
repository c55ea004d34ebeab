"""While simplifier: what is known about a loop before it runs.

A loop carries what changes and what is used (`loop_state`), and stacks nothing that follows from
another stack (`derived_stacks`). One that counts from one constant to
another gets its trip count as ``backend_config={"known_trip_count":{"n":"24"}}``, as in XLA.
"""

from __future__ import annotations

from compiler.analysis.trip_count import note_trip_count, trip_count
from compiler.hlo.call_graph import control_computations
from compiler.hlo.ir import HloModule
from compiler.passes.context import PassContext
from compiler.passes.derived_stacks import derive_stacks
from compiler.passes.loop_state import simplify_loop_state


def simplify_whiles(module: HloModule, context: PassContext) -> bool:
    """Simplify and annotate all loops, each of which gets a body and a condition of its own."""
    is_changed = simplify_loop_state(module, context)
    for computation in control_computations(module):
        for instr in list(computation):
            if instr.opcode != "while" or instr.operands[0].opcode != "tuple":
                continue
            count = trip_count(instr)
            if count is not None and note_trip_count(instr, count):
                context.counts["trip counts"] += 1
    derived = derive_stacks(module)
    context.counts["derived stacks"] += derived
    return bool(is_changed or derived or context.counts["trip counts"])
