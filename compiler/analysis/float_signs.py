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


def has_sign(node: HloInstruction, sign: int, steps: int = _MOST_STEPS) -> bool:
    """Whether every element that is a number, times `sign` (1 or -1), is at least 0."""
    value = splat_value(node)
    if value is not None:
        return sign * float(value) >= 0
    if sign > 0 and node.opcode in _NEVER_NEGATIVE:
        return True
    if not steps:
        return False
    operands = node.operands
    match node.opcode:
        case "negate":
            return has_sign(operands[0], -sign, steps - 1)
        case "minimum" | "maximum" | "add":
            one_is_enough = node.opcode == ("maximum" if sign > 0 else "minimum")
            found = (has_sign(o, sign, steps - 1) for o in operands)
            return any(found) if one_is_enough else all(found)
        case "divide":  # by -0, which is at least 0, a negative number gives infinity
            divisor = splat_value(operands[1])
            is_positive = divisor is not None and float(divisor) > 0
            return is_positive and has_sign(operands[0], sign, steps - 1)
        case "multiply":
            a, b = operands
            return (sign > 0 and a is b) or any(
                has_sign(a, one, steps - 1) and has_sign(b, sign * one, steps - 1)
                for one in (1, -1)
            )
        case "subtract":
            a, b = operands
            return _is_at_most(b, a) if sign > 0 else _is_at_most(a, b)
    return node.opcode in _MOVES and has_sign(operands[0], sign, steps - 1)


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
