"""Call inliner: every `call` is replaced by a copy of what it calls.

So is a fusion of the input that has no plan of ours: it was another compiler's choice, for its own
machine. One with a plan comes from a dump and is compiled as it stands.
"""

from __future__ import annotations

from compiler.analysis.window_config import OWN, read_config
from compiler.diagnostics import UnsupportedError
from compiler.hlo.call_graph import drop_unreachable, reachable
from compiler.hlo.cloning import clone
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.origins import scoped
from compiler.passes.context import PassContext

MOST_INSTRUCTIONS = 300_000
_CALLEE = {"call": "to_apply", "fusion": "calls"}
"""The attribute that names the body."""


def inline_calls(module: HloModule, context: PassContext) -> bool:
    """Inline all calls, callees first, then drop the computations no longer needed."""
    for computation in reachable(module):
        calls = [i for i in computation if _is_inlined(i)]
        for call in calls:
            _inline(computation, call)
            if len(computation.instructions) > MOST_INSTRUCTIONS:
                raise UnsupportedError(
                    f"computation %{computation.name}: more than {MOST_INSTRUCTIONS:,} instructions "
                    "once its calls, and theirs, are replaced by what they call",
                    call.span,
                )
        if calls:
            computation.sort()
        context.counts["calls"] += len(calls)
    dropped = drop_unreachable(module)
    return bool(context.counts["calls"] or dropped)


def _is_inlined(instr: HloInstruction) -> bool:
    return instr.opcode in _CALLEE and OWN not in read_config(instr)


def _inline(caller: HloComputation, call: HloInstruction) -> None:
    """Replace one call by a copy of its callee's body (which holds no calls any more)."""
    callee = call.attrs[_CALLEE[call.opcode]]
    assert isinstance(callee, HloComputation)
    made = dict(zip(callee.parameters, call.operands, strict=True))
    for instr in callee:
        if instr.opcode != "parameter":
            made[instr] = clone(instr, caller, [made[o] for o in instr.operands])
            scoped(made[instr], call)
    _order(caller, call, made)
    call.replace_all_uses_with(made[callee.root_instruction])
    caller.remove(call)


def _order(
    caller: HloComputation, call: HloInstruction, made: dict[HloInstruction, HloInstruction]
) -> None:
    """Keep the control edges of the callee, and those of the call for all that comes of it."""
    inlined = [copy for instr, copy in made.items() if instr.opcode != "parameter"]
    for instr, copy in made.items():
        if instr.opcode != "parameter":
            before = [made[p] for p in instr.control_predecessors()]
            copy.set_control_predecessors([*before, *call.control_predecessors()])
    for after in list(caller.control_successors.get(call, ())):
        after.set_control_predecessors([*after.control_predecessors(), *inlined])
