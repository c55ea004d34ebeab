"""Common subexpression elimination: equal instructions of a computation become one.

Two instructions are equal when opcode, shape, attributes and (already merged) operands are.
Computations that are equal as functions are merged first, so that two reduces by `add` match.
"""

from __future__ import annotations

from compiler.hlo.call_graph import drop_unreachable, reachable
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.keys import NOTES, computation_key, instruction_key
from compiler.hlo.opcodes import OPCODES, Trait, with_trait
from compiler.hlo.origins import absorb
from compiler.passes.context import PassContext
from compiler.rewrite.graph import has_side_effect, rename_calls

_KEPT = with_trait(Trait.RUNS) | {"parameter", "tuple"}
"""Never merged; two tuples in a result must lie in places of their own."""


def eliminate_common_subexpressions(module: HloModule, context: PassContext) -> bool:
    """Merge equal applied computations, then equal instructions in each computation."""
    merged = _merge_applied_computations(module)
    removed = sum(_merge_instructions(c) for c in reachable(module))
    context.counts["computations"] = merged
    context.counts["instructions"] = removed
    return bool(merged or removed)


def _merge_applied_computations(module: HloModule) -> int:
    """Let reduce, scatter, sort ... share one copy of each equal computation they apply."""
    first: dict[tuple[object, ...], HloComputation] = {}
    same: dict[HloComputation, HloComputation] = {}
    for computation in reachable(module):
        for instr in computation:
            if OPCODES[instr.opcode].has(Trait.RUNS):
                continue
            for callee in instr.called_computations():
                if callee not in same:
                    same[callee] = first.setdefault(computation_key(callee, NOTES), callee)
            rename_calls(instr, lambda c: same.get(c, c))
    return drop_unreachable(module)


def _merge_instructions(computation: HloComputation) -> int:
    seen: dict[tuple[object, ...], HloInstruction] = {}
    removed = 0
    for instr in list(computation):
        traits = OPCODES[instr.opcode].traits
        if instr.opcode in _KEPT or Trait.NONDETERMINISTIC in traits:
            continue
        if has_side_effect(instr):
            continue
        operands: tuple[int, ...] = tuple(id(o) for o in instr.operands)
        if Trait.COMMUTATIVE in traits and len(operands) == 2:
            operands = tuple(sorted(operands))
        kept = seen.setdefault((instruction_key(instr), operands), instr)
        if kept is not instr:
            absorb(kept, (instr,))
            instr.replace_all_uses_with(kept)
            computation.remove(instr)
            removed += 1
    return removed
