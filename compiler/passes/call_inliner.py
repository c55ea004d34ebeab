"""Call inliner: every `call` is replaced by a copy of what it calls.

So is a fusion of the input that has no plan of ours: it was another compiler's choice, for its own
machine. One with a plan comes from a dump and is compiled as it stands. A conditional of one branch is
a call, whatever its index. What is applied to elements
has no control flow: of a `conditional` there all branches are computed and one is selected.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.analysis.window_config import OWN, read_config
from compiler.diagnostics import UnsupportedError
from compiler.hlo.call_graph import control_computations, drop_unreachable, reachable
from compiler.hlo.cloning import clone
from compiler.hlo.dtypes import PRED
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.origins import scoped
from compiler.hlo.shape import TupleShape
from compiler.passes.context import PassContext
from compiler.rewrite.emitter import Emitter, result_of

MOST_INSTRUCTIONS = 300_000
_CALLEE = {"call": "to_apply", "fusion": "calls"}
"""The attribute that names the body."""


def inline_calls(module: HloModule, context: PassContext) -> bool:
    """Inline all calls, callees first, then drop the computations no longer needed."""
    controlled = set(control_computations(module))
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
        branches = [] if computation in controlled else _conditionals(computation)
        for conditional in branches:
            _select(computation, conditional)
        if calls or branches:
            computation.sort()
        context.counts["calls"] += len(calls) + len(branches)
    dropped = drop_unreachable(module)
    return bool(context.counts["calls"] or dropped)


def _is_inlined(instr: HloInstruction) -> bool:
    if instr.opcode == "conditional":
        return len(instr.called_computations()) == 1
    return instr.opcode in _CALLEE and OWN not in read_config(instr)


def _conditionals(computation: HloComputation) -> list[HloInstruction]:
    return [instr for instr in computation if instr.opcode == "conditional"]


def _select(caller: HloComputation, conditional: HloInstruction) -> None:
    """Replace a conditional by copies of all its branches and selections of their results."""
    e = Emitter.at(conditional)
    chooser, *operands = conditional.operands
    results: list[list[HloInstruction]] = []
    for branch, operand in zip(conditional.called_computations(), operands, strict=True):
        root = _copied(caller, branch, [operand], conditional)[branch.root_instruction]
        is_tuple = isinstance(root.shape, TupleShape)
        count = len(root.shape.elements) if isinstance(root.shape, TupleShape) else 1
        results.append([e.get_tuple_element(root, i) if is_tuple else root for i in range(count)])
    is_first = [
        chooser if chooser.array.dtype == PRED else e.compare_to(chooser, number, "EQ")
        for number in range(len(results) - 1)
    ]
    chosen = results[-1]
    for condition, values in reversed(list(zip(is_first, results, strict=False))):
        chosen = [e.select(condition, a, b) for a, b in zip(values, chosen, strict=True)]
    conditional.replace_all_uses_with(result_of(e, conditional, chosen))
    caller.remove(conditional)


def _copied(
    caller: HloComputation,
    callee: HloComputation,
    operands: Sequence[HloInstruction],
    call: HloInstruction,
) -> dict[HloInstruction, HloInstruction]:
    """A copy in `caller` of each instruction of a body; of parameters, the operands."""
    made = dict(zip(callee.parameters, operands, strict=True))
    for instr in callee:
        if instr.opcode != "parameter":
            made[instr] = clone(instr, caller, [made[o] for o in instr.operands])
            scoped(made[instr], call)
    return made


def _inline(caller: HloComputation, call: HloInstruction) -> None:
    """Replace one call by a copy of its callee's body (which holds no calls any more)."""
    (callee,) = call.called_computations()
    is_branch = call.opcode == "conditional"
    made = _copied(caller, callee, call.operands[1:] if is_branch else call.operands, call)
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
