"""Ordered rounding: what is put in order is rounded to its type before.

    q = bf16[8,64] divide(a, b)          q = bf16[8,64] divide(a, b)
    s = bf16[8,64] sort(q), ..           r = bf16[8,64] reduce-precision(q), exponent_bits=8, mantissa_bits=7
                                         s = bf16[8,64] sort(r), ..

Inside a kernel a bf16 value may keep the precision of f32 (docs/numerics.md). Both of a pair that a
sort exchanges must see the same order of it, though they may compare in different kernels, of which one
has computed an element anew and the other has read it as it was stored: elements would be lost and others
be there twice. So operands of a sort are rounded where that is not certain, and so is what its comparator
computes of them.
"""

from __future__ import annotations

from compiler.hlo.dtypes import BF16
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import ArrayShape
from compiler.passes.context import PassContext
from compiler.passes.expanders.custom_call_expander import is_ordering_call
from compiler.rewrite.graph import emit

Instr = HloInstruction
_MOVES = Trait.INDEX_MAP | Trait.PIECEWISE | Trait.TAKES_PART | Trait.EXACT | Trait.TUPLE_ONLY
"""Results whose elements are elements of operands, or follow from them without rounding."""
_STORED = Trait.GIVEN | Trait.ROUNDED | Trait.HANDS_STATE
"""Results whose elements are numbers of their type wherever they are computed."""


def round_ordered(module: HloModule, context: PassContext) -> bool:
    """Round operands and comparators of every sort, `topk` and call of one."""
    known: dict[Instr, bool] = {}
    for computation in list(module.computations.values()):
        orderings = [i for i in computation if _is_ordering(i)]
        for instr in orderings:
            context.counts["operands"] += _round_operands(instr, known)
            for comparator in instr.called_computations():
                context.counts["comparators"] += _round_computed(comparator)
        if orderings:
            computation.sort()
    return bool(context.counts["operands"] or context.counts["comparators"])


def _is_ordering(instr: Instr) -> bool:
    return OPCODES[instr.opcode].has(Trait.ORDERS) or is_ordering_call(instr)


def _round_operands(instr: Instr, known: dict[Instr, bool]) -> int:
    made = 0
    for place, operand in enumerate(instr.operands):
        if not _is_rounded(operand, known):
            instr.set_operand(place, _rounded(operand))
            made += 1
    return made


def _round_computed(comparator: HloComputation) -> int:
    """Round what a comparator computes in bf16; the number of values that are rounded."""
    known: dict[Instr, bool] = {}
    made = 0
    for instr in list(comparator):
        if not _is_rounded(instr, known):
            instr.replace_all_uses_with(_rounded(instr))
            known[instr] = True
            made += 1
    if made:
        comparator.sort()
    return made


def _rounded(operand: Instr) -> Instr:
    attrs: dict[str, object] = {"exponent_bits": 8, "mantissa_bits": 7}
    return emit(operand, "reduce-precision", operand.array, (operand,), attrs)


def _is_rounded(instr: Instr, known: dict[Instr, bool]) -> bool:
    """Whether no element is a bf16 number that a kernel may keep more precision of."""
    pending = [instr]
    while pending:
        node = pending[-1]
        found = known.get(node, _at_sight(node))
        if found is None:
            unknown = [o for o in node.operands if o not in known]
            if unknown:
                pending += unknown
                continue
            found = all(known[o] for o in node.operands)
        known[node] = found
        pending.pop()
    return known[instr]


def _at_sight(node: Instr) -> bool | None:
    """What is known without a look at the operands; None if it follows from them."""
    op = OPCODES[node.opcode]
    is_wide = isinstance(node.shape, ArrayShape) and node.shape.dtype != BF16
    if is_wide or op.traits & _STORED or _is_ordering(node):
        return True
    return None if op.traits & _MOVES else False
