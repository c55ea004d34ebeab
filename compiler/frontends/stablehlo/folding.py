"""Values known at compile time: shape operands, constants used inside of reducers.

An instruction is foldable when it and all it depends on compute the same on every device and at
every run. Its value is found by evaluating that slice of the program.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from compiler.hlo.evaluator import EvaluationOptions, evaluate_computation
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import leaves

_MAX_ELEMENTS = 1 << 20  # what is folded are shapes and small tables
_IMPURE = Trait.SIDE_EFFECT | Trait.NONDETERMINISTIC | Trait.COLLECTIVE | Trait.ASYNC | Trait.OPAQUE


def is_foldable(instr: HloInstruction) -> bool:
    """Whether the instruction is a function of its operands, and a small one."""
    if instr.opcode == "parameter" or not _is_pure(instr):
        return False
    return all(leaf.element_count <= _MAX_ELEMENTS for leaf in leaves(instr.shape))


def _is_pure(instr: HloInstruction) -> bool:
    if OPCODES[instr.opcode].traits & _IMPURE:
        return False
    if not instr.attrs:
        return True
    return all(_is_pure(inner) for callee in instr.called_computations() for inner in callee)


def folded(instr: HloInstruction) -> npt.NDArray[np.generic]:
    """The value of a foldable array."""
    literal = instr.attrs.get("literal")
    if isinstance(literal, np.ndarray):
        return literal
    computation = HloComputation("folded")
    copies: dict[HloInstruction, HloInstruction] = {}
    for needed in _operands_first(instr):
        operands = [copies[operand] for operand in needed.operands]
        copy = HloInstruction(
            needed.opcode, needed.name, needed.shape, operands, dict(needed.attrs)
        )
        copies[needed] = computation.add(copy)
    computation.root = copies[instr]
    (value,) = evaluate_computation(computation, [], EvaluationOptions("highest"))
    return value


def _operands_first(root: HloInstruction) -> list[HloInstruction]:
    """Everything `root` depends on, then `root`; no recursion, chains may be long."""
    done: dict[HloInstruction, None] = {}
    stack = [root]
    while stack:
        missing = [operand for operand in stack[-1].operands if operand not in done]
        if missing:
            stack.append(missing[0])
        else:
            done[stack.pop()] = None
    return list(done)
