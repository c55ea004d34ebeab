"""How many bf16 passes a dot takes, and which parts of its operands they multiply.

An f32 operand is the sum of bf16 parts: high, middle and low. Products of parts are summed small to
large:

    default   hi*hi                                              1 pass
    high      hi*lo + lo*hi + hi*hi                              3
    highest   the six products of order at most 2                6

An operand that is exact in bf16 has one part, so a bf16 x f32 dot takes 1, 2 or 3 passes.

A dot of two s8 or two u8 operands into s32 is one pass of integers: its operands are *pairs*, 16 bits
with element p of K in the low byte and element ``p + pair_depth(K)`` in the high one.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.diagnostics import UnsupportedError
from compiler.hlo.attributes import RawText
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import Trait, with_trait
from compiler.hlo.representability import holds

BYTES = ("s8", "u8")
"""Types of which the MXU has passes of integers."""
_PARTS = {"default": 1, "high": 2, "highest": 3}
_EXACT_IN_BF16 = frozenset(
    {
        "bf16", "f8e5m2", "f8e4m3", "f8e4m3fn", "f8e3m4", "f8e4m3b11fnuz", "f8e4m3fnuz",
        "f8e5m2fnuz", "s8", "u8", "pred",
    }
)  # fmt: skip
_ALGORITHM_PRECISION = {
    "dot_bf16_bf16_f32": "default",
    "dot_bf16_bf16_bf16": "default",
    "dot_bf16_bf16_f32_x3": "high",
    "dot_bf16_bf16_f32_x6": "highest",
    "dot_f32_f32_f32": "highest",
}


@dataclass(frozen=True)
class DotParts:
    """How many bf16 parts each operand is split into."""

    lhs: int = 1
    rhs: int = 1
    integer: str = ""
    """Type of the operands of a pass of integers, else empty."""

    @property
    def passes(self) -> int:
        """Number of MXU passes."""
        order = max(self.lhs, self.rhs) - 1
        return sum(i + j <= order for i in range(self.lhs) for j in range(self.rhs))

    def of(self, operand: int) -> int:
        """Parts of operand 0 (left) or 1 (right)."""
        return self.rhs if operand else self.lhs


def dot_parts(dot: HloInstruction | None, precision: str) -> DotParts:
    """The parts of a dot's operands; an attribute of the dot wins over `precision`.

    Raises UnsupportedError for a dot of integers, unless they make a pass of integers.
    """
    if dot is None:
        return DotParts()
    if is_integer_pass(dot):
        return DotParts(integer=dot.operands[0].array.dtype.name)
    if not dot.array.dtype.is_float or any(not o.array.dtype.is_float for o in dot.operands):
        raise UnsupportedError(
            f"%{dot.name}: the MXU multiplies floats; convert the operands of this "
            f"{dot.operands[0].array.dtype} x {dot.operands[1].array.dtype} -> "
            f"{dot.array.dtype} dot to f32",
            dot.span,
        )
    parts = _PARTS[stated_precision(dot) or precision]
    lhs, rhs = (1 if _is_exact(operand) else parts for operand in dot.operands)
    return DotParts(lhs, rhs)


def is_integer_pass(dot: HloInstruction) -> bool:
    """Whether this is a dot of two operands of one 8-bit integer type into s32."""
    left, right = (operand.array.dtype.name for operand in dot.operands)
    return left == right and left in BYTES and dot.array.dtype.name == "s32"


def pair_depth(depth: int) -> int:
    """Pairs along K of a pass of integers, in whole vregs."""
    return -(-depth // 256) * 128


_SAME_NUMBERS = with_trait(Trait.INDEX_MAP) | {"bitcast", "convert"}


def _is_exact(operand: HloInstruction) -> bool:
    """Whether bf16 holds all values of the operand: by its type, or that it was widened from."""
    while operand.opcode in _SAME_NUMBERS:
        if operand.array.dtype.name in _EXACT_IN_BF16:
            return True
        if operand.opcode == "convert" and not holds(
            operand.array.dtype, operand.operands[0].array.dtype
        ):
            return False  # what it was widened from says nothing of what it became
        operand = operand.operands[0]
    return operand.array.dtype.name in _EXACT_IN_BF16


def stated_precision(dot: HloInstruction) -> str | None:
    """The precision that a dot or a convolution states, if it does."""
    algorithm = _text(dot.attrs.get("algorithm"))
    if algorithm in _ALGORITHM_PRECISION:
        return _ALGORITHM_PRECISION[algorithm]
    stated = _text(dot.attrs.get("operand_precision")).lower()
    for precision in ("highest", "high"):
        if precision in stated:
            return precision
    return None


def _text(value: object) -> str:
    if isinstance(value, RawText):
        return value.text
    return "" if value is None else str(value)
