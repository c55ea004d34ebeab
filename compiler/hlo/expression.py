"""HLO values with Python's operators, for formulas that should read like formulas.

x * x + 1.0        multiply, then add a constant of x's shape
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.hlo.builder import HloBuilder
from compiler.hlo.dtypes import DType
from compiler.hlo.ir import HloInstruction

Number = int | float


class Expr:
    """An array of a computation in the making; numbers beside it are of its type and dimensions."""

    __slots__ = ("b", "instr")

    def __init__(self, b: HloBuilder, instr: HloInstruction) -> None:
        self.b = b
        self.instr = instr

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.instr.array.dtype

    def like(self, value: Expr | Number) -> Expr:
        """A number as an array of this one's type and dimensions; expressions are themselves."""
        return value if isinstance(value, Expr) else Expr(self.b, self.b.like(self.instr, value))

    def full(self, dtype: DType, value: Number) -> Expr:
        """An array of one value, of this one's dimensions and another type."""
        return Expr(self.b, self.b.full(dtype, self.instr.array.dims, value))

    def of(self, opcode: str, *others: Expr | Number) -> Expr:
        """An elementwise operation of this value and others."""
        operands = [self.instr, *(self.like(other).instr for other in others)]
        return Expr(self.b, self.b.instruction(opcode, operands))

    def compare(self, direction: str, other: Expr | Number) -> Expr:
        """A truth value per element; the direction is EQ, NE, LT, LE, GT or GE."""
        return Expr(self.b, self.b.compare(self.instr, self.like(other).instr, direction))

    def where(self, on_true: Expr | Number, on_false: Expr | Number) -> Expr:
        """`on_true` where this truth value holds, else `on_false`; one of them is no number."""
        model = on_true if isinstance(on_true, Expr) else on_false
        assert isinstance(model, Expr)
        sides = model.like(on_true).instr, model.like(on_false).instr
        return Expr(self.b, self.b.select(self.instr, *sides))

    def convert(self, dtype: DType) -> Expr:
        """The values in another element type."""
        return Expr(self.b, self.b.cast(self.instr, dtype))

    def bits(self, dtype: DType) -> Expr:
        """The same bits as another type of the same width."""
        if dtype == self.dtype:
            return self
        return Expr(self.b, self.b.bitcast_convert(self.instr, dtype))

    def real(self) -> Expr:
        """The real part; a real array is its own."""
        return Expr(self.b, self.b.real(self.instr))

    def conj(self) -> Expr:
        """The complex conjugate; a real array is its own."""
        return Expr(self.b, self.b.conj(self.instr))

    def as_type(self, dtype: DType) -> Expr:
        """Converted; a real array to a complex one without imaginary part."""
        return Expr(self.b, self.b.as_type(self.instr, dtype))

    def spread(self, dims: Sequence[int]) -> Expr:
        """A scalar repeated to `dims`; an array of them is itself."""
        if self.instr.array.dims == tuple(dims):
            return self
        return Expr(self.b, self.b.broadcast(self.instr, dims))

    def summed(self) -> Expr:
        """The sum of all elements, a scalar."""
        rank = self.instr.array.rank
        return self if not rank else Expr(self.b, self.b.total(self.instr, *range(rank)))

    def __add__(self, other: Expr | Number) -> Expr:
        return self.of("add", other)

    def __radd__(self, other: Number) -> Expr:
        return self.like(other) + self

    def __sub__(self, other: Expr | Number) -> Expr:
        return self.of("subtract", other)

    def __rsub__(self, other: Number) -> Expr:
        return self.like(other) - self

    def __mul__(self, other: Expr | Number) -> Expr:
        return self.of("multiply", other)

    def __rmul__(self, other: Number) -> Expr:
        return self.like(other) * self

    def __truediv__(self, other: Expr | Number) -> Expr:
        return self.of("divide", other)

    def __rtruediv__(self, other: Number) -> Expr:
        return self.like(other) / self

    def __neg__(self) -> Expr:
        return self.of("negate")

    def __abs__(self) -> Expr:
        return self.of("abs")

    def __and__(self, other: Expr | int) -> Expr:
        return self.of("and", other)

    def __or__(self, other: Expr | int) -> Expr:
        return self.of("or", other)

    def __xor__(self, other: Expr | int) -> Expr:
        return self.of("xor", other)

    def __invert__(self) -> Expr:
        return self.of("not")

    def __lshift__(self, other: Expr | int) -> Expr:
        """Left; 0 from the width on."""
        return self.of("shift-left", other)

    def __rshift__(self, other: Expr | int) -> Expr:
        """Right with zeros, whatever the type; 0 from the width on."""
        return self.of("shift-right-logical", other)

    def __lt__(self, other: Expr | Number) -> Expr:
        return self.compare("LT", other)

    def __le__(self, other: Expr | Number) -> Expr:
        return self.compare("LE", other)

    def __gt__(self, other: Expr | Number) -> Expr:
        return self.compare("GT", other)

    def __ge__(self, other: Expr | Number) -> Expr:
        return self.compare("GE", other)

    def equals(self, other: Expr | Number) -> Expr:
        """Whether each element equals the other's."""
        return self.compare("EQ", other)

    def differs(self, other: Expr | Number) -> Expr:
        """Whether each element does not equal the other's; NaN differs from all."""
        return self.compare("NE", other)


def polynomial(x: Expr, coefficients: Sequence[float]) -> Expr:
    """Horner's rule, highest power first."""
    result = x.like(coefficients[0])
    for coefficient in coefficients[1:]:
        result = result * x + coefficient
    return result


def chebyshev(x: Expr, coefficients: Sequence[float]) -> Expr:
    """Clenshaw's rule for a series in T_n(x / 2), highest term first, the last one halved."""
    newest, older, oldest = x.like(0.0), x.like(0.0), x.like(0.0)
    for coefficient in coefficients:
        newest, older, oldest = x * newest - older + coefficient, newest, older
    return (newest - oldest) * 0.5


INFINITY = float(np.inf)
NAN = float(np.nan)
