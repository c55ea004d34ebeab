"""Constant folding: operations on constants are computed now, by the evaluator.

Only small results are folded. Arrays of one repeated value are kept as a broadcast scalar,
and iota and broadcast stay symbolic: they cost a kernel nothing, a literal costs memory. Joined
they become one literal, as index vectors are that a frontend writes element by element. Products
have the precision that they would have on the machine.

What reads a new constant is simplified at once, which may leave more to fold.
"""

from __future__ import annotations

import numpy as np

from compiler.analysis.known_values import Literal, value_of
from compiler.hlo.call_graph import drop_unreachable, reachable
from compiler.hlo.evaluator import EvaluationOptions
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait, with_any
from compiler.hlo.shape import ArrayShape
from compiler.passes.algebraic_simplifier import rules_on
from compiler.passes.context import PassContext
from compiler.rewrite import make
from compiler.rewrite.graph import emit, has_side_effect, replace
from compiler.rewrite.rewriter import rewrite_computation

MAX_FOLDED_ELEMENTS = 1024
"""A register: larger constants take more of HBM and of the program than the operation does."""
_SYMBOLIC = with_any(Trait.SYMBOLIC | Trait.GIVEN | Trait.FORWARDS)
_REFUSED = Trait.RUNS | Trait.OPAQUE | Trait.NONDETERMINISTIC | Trait.COLLECTIVE | Trait.ASYNC


def fold_constants(module: HloModule, context: PassContext) -> bool:
    """Fold in every computation, operands before users, until nothing is left to fold."""
    options, rules = EvaluationOptions(context.planner.precision), rules_on(context.chip)
    for computation in reachable(module):
        while folded := _fold_once(computation, context, options):
            computation.sort()
            readers = (user for constant in folded for user in constant.users)
            context.counts.update(rewrite_computation(computation, rules, readers))
    drop_unreachable(module)
    return bool(context.counts)


def _fold_once(
    computation: HloComputation, context: PassContext, options: EvaluationOptions
) -> list[HloInstruction]:
    """Fold what is there; return the constants."""
    made: list[HloInstruction] = []
    for instr in list(computation):
        if instr.computation is not computation:
            continue
        if _is_array_splat(instr):
            constant = make.splat(instr, instr.array, _literal(instr).reshape(-1)[0])
            context.counts["splats"] += 1
        elif _is_foldable(instr):
            constant = _folded(instr, options)
            context.counts[instr.opcode] += 1
        else:
            continue
        replace(instr, constant)
        made.append(constant)
    return made


def _is_array_splat(instr: HloInstruction) -> bool:
    """Whether this is an array literal of one repeated value."""
    literal = instr.attrs.get("literal")
    if instr.opcode != "constant" or not isinstance(literal, np.ndarray) or literal.ndim == 0:
        return False
    first = literal.reshape(-1)[:1]
    return literal.size > 0 and literal.tobytes() == first.tobytes() * literal.size


def _is_foldable(instr: HloInstruction) -> bool:
    if instr.opcode in _SYMBOLIC or not isinstance(instr.shape, ArrayShape) or not instr.operands:
        return False
    if instr.array.element_count > MAX_FOLDED_ELEMENTS:
        return False
    if OPCODES[instr.opcode].traits & _REFUSED:
        return False
    if has_side_effect(instr):
        return False
    is_known = _is_known if instr.opcode == "concatenate" else _has_literal
    return all(is_known(operand) for operand in instr.operands)


def _has_literal(instr: HloInstruction) -> bool:
    return isinstance(instr.attrs.get("literal"), np.ndarray)


def _is_known(instr: HloInstruction) -> bool:
    """Whether this is a constant, or one that is kept symbolic."""
    is_symbolic = OPCODES[instr.opcode].has(Trait.SYMBOLIC) and all(
        map(_has_literal, instr.operands)
    )
    return is_symbolic or _has_literal(instr)


def _folded(instr: HloInstruction, options: EvaluationOptions) -> HloInstruction:
    """The instruction's value as a constant."""
    values = [_literal(operand) for operand in instr.operands]
    return emit(instr, "constant", instr.shape, (), {"literal": value_of(instr, values, options)})


def _literal(instr: HloInstruction) -> Literal:
    """The elements of a known array."""
    literal = instr.attrs.get("literal")
    if isinstance(literal, np.ndarray):
        return literal
    return value_of(instr, [_literal(operand) for operand in instr.operands])
