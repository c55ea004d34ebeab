"""HLO values with Python's operators, for formulas that should read like formulas.

x * x + 1.0        multiply, then add a constant of x's shape
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.hlo.builder import HloBuilder
from compiler.hlo.dtypes import DType
from compiler.hlo.ir import HloInstruction


class Expr:
    """An HLO value of a computation in the making. Numbers become constants of its element type."""

    def __init__(self, b: HloBuilder, instr: HloInstruction) -> None:
        self.b = b
        self.instr = instr

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.instr.array.dtype

    def of(self, other: Expr | float) -> HloInstruction:
        """`other` as an instruction of this value's shape."""
        return other.instr if isinstance(other, Expr) else self.b.full_like(other, self.instr)

    def constant(self, value: float) -> Expr:
        """A constant of this value's shape."""
        return Expr(self.b, self.b.full_like(value, self.instr))

    def unary(self, opcode: str) -> Expr:
        """An elementwise operation on this value."""
        return Expr(self.b, self.b.unary(opcode, self.instr))

    def binary(self, opcode: str, other: Expr | float) -> Expr:
        """An elementwise operation on this value and another."""
        return Expr(self.b, self.b.binary(opcode, self.instr, self.of(other)))

    def compare(self, direction: str, other: Expr | float) -> Expr:
        """A truth value per element."""
        return Expr(self.b, self.b.compare(self.instr, self.of(other), direction))

    def where(self, on_true: Expr, on_false: Expr | float) -> Expr:
        """`on_true` where this truth value holds, else `on_false`."""
        other = on_true.of(on_false)
        return Expr(self.b, self.b.select(self.instr, on_true.instr, other))

    def convert(self, dtype: DType) -> Expr:
        """The value in another element type."""
        return self if dtype is self.dtype else Expr(self.b, self.b.convert(self.instr, dtype))

    def bits(self, dtype: DType) -> Expr:
        """The same bits as another type of the same width."""
        return Expr(self.b, self.b.bitcast_convert(self.instr, dtype))

    def __add__(self, other: Expr | float) -> Expr:
        return self.binary("add", other)

    def __sub__(self, other: Expr | float) -> Expr:
        return self.binary("subtract", other)

    def __mul__(self, other: Expr | float) -> Expr:
        return self.binary("multiply", other)

    def __truediv__(self, other: Expr | float) -> Expr:
        return self.binary("divide", other)

    def __rsub__(self, other: float) -> Expr:
        return self.constant(other) - self

    def __rtruediv__(self, other: float) -> Expr:
        return self.constant(other) / self

    def __neg__(self) -> Expr:
        return self.unary("negate")

    def __and__(self, other: Expr) -> Expr:
        return self.binary("and", other)

    def __or__(self, other: Expr) -> Expr:
        return self.binary("or", other)

    def __invert__(self) -> Expr:
        return self.unary("not")

    def __lt__(self, other: Expr | float) -> Expr:
        return self.compare("LT", other)

    def __le__(self, other: Expr | float) -> Expr:
        return self.compare("LE", other)

    def __gt__(self, other: Expr | float) -> Expr:
        return self.compare("GT", other)

    def __ge__(self, other: Expr | float) -> Expr:
        return self.compare("GE", other)

    def equals(self, other: Expr | float) -> Expr:
        """Whether each element equals the other's."""
        return self.compare("EQ", other)


def polynomial(x: Expr, coefficients: Sequence[float]) -> Expr:
    """Horner's rule, highest power first."""
    result = x.constant(coefficients[0])
    for coefficient in coefficients[1:]:
        result = result * x + coefficient
    return result


def chebyshev(x: Expr, coefficients: Sequence[float]) -> Expr:
    """Clenshaw's rule for a series in T_n(x / 2), highest term first, the last one halved."""
    newest, older, oldest = x.constant(0.0), x.constant(0.0), x.constant(0.0)
    for coefficient in coefficients:
        newest, older, oldest = x * newest - older + coefficient, newest, older
    return (newest - oldest) * 0.5


INFINITY = float(np.inf)
NAN = float(np.nan)
