"""Signs of floats that follow from how they are made, and what of them is rounded.

A NaN has every sign: nothing is said of elements that are not numbers.
"""

from __future__ import annotations

from compiler.analysis.indexing import Var, var
from compiler.analysis.indexing_maps import Index, operand_reads
from compiler.analysis.reducers import reducer_kind
from compiler.hlo.dtypes import BF16
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import Trait, with_trait
from compiler.rewrite.pattern import splat_value

_MOVES = with_trait(Trait.INDEX_MAP)
_NEVER_NEGATIVE = frozenset({"abs", "exponential", "logistic", "sqrt"})
_MOST_STEPS = 8
"""Operations that are looked through."""


def is_never_positive(node: HloInstruction, steps: int = _MOST_STEPS) -> bool:
    """Whether every element that is a number is at most 0."""
    value = splat_value(node)
    if value is not None:
        return float(value) <= 0
    if not steps:
        return False
    match node.opcode:
        case "negate":
            return is_never_negative(node.operands[0], steps - 1)
        case "minimum":
            return any(is_never_positive(o, steps - 1) for o in node.operands)
        case "maximum" | "add":
            return all(is_never_positive(o, steps - 1) for o in node.operands)
        case "divide":  # by -0, which is at least 0, a negative number gives infinity
            divisor = splat_value(node.operands[1])
            is_positive = divisor is not None and float(divisor) > 0
            return is_positive and is_never_positive(node.operands[0], steps - 1)
        case "multiply":
            a, b = node.operands
            return any(
                is_never_positive(x, steps - 1) and is_never_negative(y, steps - 1)
                for x, y in ((a, b), (b, a))
            )
        case "subtract":
            return _is_at_most(*node.operands)
    return node.opcode in _MOVES and is_never_positive(node.operands[0], steps - 1)


def is_never_negative(node: HloInstruction, steps: int = _MOST_STEPS) -> bool:
    """Whether every element that is a number is at least 0."""
    value = splat_value(node)
    if value is not None:
        return float(value) >= 0
    if node.opcode in _NEVER_NEGATIVE:
        return True
    if not steps:
        return False
    match node.opcode:
        case "negate":
            return is_never_positive(node.operands[0], steps - 1)
        case "maximum":
            return any(is_never_negative(o, steps - 1) for o in node.operands)
        case "minimum" | "add":
            return all(is_never_negative(o, steps - 1) for o in node.operands)
        case "multiply":
            a, b = node.operands
            return a is b or all(is_never_negative(o, steps - 1) for o in node.operands)
        case "subtract":
            return _is_at_most(node.operands[1], node.operands[0])
    return node.opcode in _MOVES and is_never_negative(node.operands[0], steps - 1)


def _is_at_most(a: HloInstruction, b: HloInstruction) -> bool:
    """Whether each element of b is a maximum over elements of a with the one in its place."""
    index = tuple(var(Var(f"sign{d}", 0, n - 1)) for d, n in enumerate(a.array.dims))
    pending: list[tuple[HloInstruction, Index]] = [(b, index)]
    for _ in range(_MOST_STEPS):
        if not pending:
            return False
        node, at = pending.pop()
        if node.opcode == "reduce":
            kept = tuple(e for d, e in enumerate(index) if d not in node.dimensions)
            if (
                node.operands[0] is a
                and at == kept
                and reducer_kind(node.attrs.get("to_apply")) == "maximum"
            ):
                return True
        elif node.opcode == "maximum" or node.opcode in _MOVES:
            pending += operand_reads(node, at)
    return False


def is_only_rounded(node: HloInstruction) -> bool:
    """Whether nothing sees more of a float than bf16 has: all that read it round it, or store it so."""
    if node.array.dtype == BF16:
        return all(user.opcode == "tuple" for user in node.users)
    rounded = [u.opcode == "convert" and u.array.dtype == BF16 for u in node.users]
    computation = node.computation
    is_root = computation is not None and computation.root is node
    return bool(rounded) and all(rounded) and not is_root
