"""Constant folding: operations on constants are computed now, by the evaluator.

Only small results are folded. Arrays of one repeated value are kept as a broadcast scalar,
and iota and broadcast stay symbolic: they cost a kernel nothing, a literal costs memory. Products
have the precision that they would have on the machine.
"""

from __future__ import annotations

import numpy as np

from compiler.analysis.call_graph import drop_unreachable, reachable
from compiler.hlo.evaluator import EvaluationOptions, evaluate_computation
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import ArrayShape
from compiler.passes.context import PassContext
from compiler.rewrite import make
from compiler.rewrite.graph import emit, has_side_effect, replace

MAX_FOLDED_ELEMENTS = 1024
_SYMBOLIC = frozenset({"broadcast", "iota", "constant", "parameter", "tuple", "get-tuple-element"})
_CONTRACTIONS = frozenset({"convolution", "dot", "ragged-dot", "scaled-dot"})
_REFUSED = Trait.CONTROL_FLOW | Trait.NONDETERMINISTIC | Trait.COLLECTIVE | Trait.ASYNC


def fold_constants(module: HloModule, context: PassContext) -> bool:
    """Fold in every computation, operands before users."""
    options = None if context.planner is None else EvaluationOptions(context.planner.precision)
    for computation in reachable(module):
        changed = 0
        for instr in list(computation):
            if instr.computation is not computation:
                continue
            if _is_array_splat(instr):
                literal = instr.attrs["literal"]
                assert isinstance(literal, np.ndarray)
                replace(instr, make.splat(instr, instr.array, literal.reshape(-1)[0]))
                context.counts["splats"] += 1
                changed += 1
            elif _is_foldable(instr) and not (options is None and instr.opcode in _CONTRACTIONS):
                replace(instr, _folded(instr, options))
                context.counts[instr.opcode] += 1
                changed += 1
        if changed:
            computation.sort()
    drop_unreachable(module)
    return bool(context.counts)


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
    if OPCODES[instr.opcode].traits & _REFUSED or instr.opcode in ("custom-call", "fusion"):
        return False
    if has_side_effect(instr):
        return False
    return all(isinstance(o.attrs.get("literal"), np.ndarray) for o in instr.operands)


def _folded(instr: HloInstruction, options: EvaluationOptions | None) -> HloInstruction:
    """The instruction's value as a constant."""
    alone = HloComputation("folded")
    parts: list[HloInstruction] = []
    for number, operand in enumerate(instr.operands):
        attrs: dict[str, object] = {"parameter_number": number}
        parts.append(alone.add(HloInstruction("parameter", f"p{number}", operand.shape, (), attrs)))
    alone.root = alone.add(
        HloInstruction(instr.opcode, instr.name, instr.shape, parts, dict(instr.attrs))
    )
    literals = [np.asarray(o.attrs["literal"]) for o in instr.operands]
    (value,) = evaluate_computation(alone, literals, options)
    return emit(instr, "constant", instr.shape, (), {"literal": np.asarray(value)})
