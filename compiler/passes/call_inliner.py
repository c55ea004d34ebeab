"""Call inliner: every `call`, and every fusion of the input, is replaced by a copy of its body."""

from __future__ import annotations

from compiler.analysis.call_graph import drop_unreachable, reachable
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.passes.context import PassContext
from compiler.rewrite.graph import clone

_CALLEE = {"call": "to_apply", "fusion": "calls"}
"""The attribute that names the body. A fusion is another compiler's choice, for its own machine."""


def inline_calls(module: HloModule, context: PassContext) -> bool:
    """Inline all calls, callees first, then drop the computations no longer needed."""
    for computation in reachable(module):
        calls = [i for i in computation if i.opcode in _CALLEE]
        for call in calls:
            _inline(computation, call)
        if calls:
            computation.sort()
        context.counts["calls"] += len(calls)
    dropped = drop_unreachable(module)
    return bool(context.counts["calls"] or dropped)


def _inline(caller: HloComputation, call: HloInstruction) -> None:
    """Replace one call by a copy of its callee's body (which holds no calls any more)."""
    callee = call.attrs[_CALLEE[call.opcode]]
    assert isinstance(callee, HloComputation)
    made = dict(zip(callee.parameters, call.operands, strict=True))
    for instr in callee:
        if instr.opcode != "parameter":
            made[instr] = clone(instr, caller, [made[o] for o in instr.operands])
    call.replace_all_uses_with(made[callee.root_instruction])
    caller.remove(call)
