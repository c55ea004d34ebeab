"""Values that follow from constants and iotas alone: what one instruction makes of known operands."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from compiler.hlo.evaluator import EvaluationOptions, evaluate_computation
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import ArrayShape

Literal = npt.NDArray[np.generic]

_MOST_ELEMENTS = 1 << 23  # some hundredths of a second for each operation
_MOST_DEPTH = 16
"""Operations that are gone back through for each question: the tables of indices that are met have few
(assumed)."""


def value_of(
    instr: HloInstruction, values: list[Literal], options: EvaluationOptions | None = None
) -> Literal:
    """What the evaluator makes of an instruction with these operands."""
    alone = HloComputation("folded")
    parts: list[HloInstruction] = []
    for number, operand in enumerate(instr.operands):
        attrs: dict[str, object] = {"parameter_number": number}
        parts.append(alone.add(HloInstruction("parameter", f"p{number}", operand.shape, (), attrs)))
    alone.root = alone.add(
        HloInstruction(instr.opcode, instr.name, instr.shape, parts, dict(instr.attrs))
    )
    (value,) = evaluate_computation(alone, values, options)
    return np.asarray(value)


def known_value(node: HloInstruction, depth: int = _MOST_DEPTH) -> Literal | None:
    """The elements of an array that is made of constants and iotas by elementwise arithmetic and
    rearrangement; None for others, and for large ones."""
    literal = node.attrs.get("literal")
    if isinstance(literal, np.ndarray):
        return literal
    if not isinstance(node.shape, ArrayShape) or node.array.element_count > _MOST_ELEMENTS:
        return None
    if not depth or not _is_knowable(node):
        return None
    values: list[Literal] = []
    for operand in node.operands:
        value = known_value(operand, depth - 1)
        if value is None:
            return None
        values.append(value)
    return value_of(node, values)


def _is_knowable(node: HloInstruction) -> bool:
    """Whether its value follows from those of its operands; what says a sharding hands its own on."""
    if node.attrs.get("custom_call_target") == "Sharding":
        return True
    return bool(OPCODES[node.opcode].traits & _KNOWABLE)


_KNOWABLE = Trait.ELEMENTWISE | Trait.INDEX_MAP | Trait.SYMBOLIC
