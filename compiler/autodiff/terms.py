"""Arithmetic on instructions as formulas: ``g * (1 - y * y)``, so that a rule reads as its law."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.hlo.dtypes import DType
from compiler.hlo.ir import HloInstruction
from compiler.rewrite.emitter import Emitter

Number = int | float


class Term:
    """An array in a formula; numbers beside it are of its type and dimensions."""

    __slots__ = ("e", "instr")

    def __init__(self, e: Emitter, instr: HloInstruction) -> None:
        self.e = e
        self.instr = instr

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.instr.array.dtype

    def of(self, opcode: str, *others: Term | Number) -> Term:
        """An elementwise operation of this and other terms."""
        operands = [self.instr, *(self.like(other).instr for other in others)]
        return Term(self.e, self.e.instruction(opcode, operands))

    def like(self, value: Term | Number) -> Term:
        """A number as an array like this one; terms are themselves."""
        if isinstance(value, Term):
            return value
        return Term(self.e, self.e.like(self.instr, value))

    def __add__(self, other: Term | Number) -> Term:
        return self.of("add", other)

    def __radd__(self, other: Number) -> Term:
        return self.like(other) + self

    def __sub__(self, other: Term | Number) -> Term:
        return self.of("subtract", other)

    def __rsub__(self, other: Number) -> Term:
        return self.like(other) - self

    def __mul__(self, other: Term | Number) -> Term:
        return self.of("multiply", other)

    def __rmul__(self, other: Number) -> Term:
        return self.like(other) * self

    def __truediv__(self, other: Term | Number) -> Term:
        return self.of("divide", other)

    def __rtruediv__(self, other: Number) -> Term:
        return self.like(other) / self

    def __neg__(self) -> Term:
        return self.of("negate")

    def compare(self, direction: str, other: Term | Number) -> Term:
        """A pred: EQ, NE, LT, LE, GT, GE."""
        return Term(self.e, self.e.compare(self.instr, self.like(other).instr, direction))

    def where(self, condition: Term, otherwise: Term | Number) -> Term:
        """This where the condition holds, else the other."""
        other = self.like(otherwise)
        return Term(self.e, self.e.select(condition.instr, self.instr, other.instr))

    def convert(self, dtype: DType) -> Term:
        """In another real type."""
        return Term(self.e, self.e.cast(self.instr, dtype))

    def conj(self) -> Term:
        """The complex conjugate."""
        return Term(self.e, self.e.conj(self.instr))

    def real(self) -> Term:
        """The real part."""
        return Term(self.e, self.e.real(self.instr))

    def as_type(self, dtype: DType) -> Term:
        """Converted, to a complex type too."""
        return Term(self.e, self.e.as_type(self.instr, dtype))

    def spread(self, dims: Sequence[int]) -> Term:
        """A scalar repeated to `dims`."""
        if self.instr.array.dims == tuple(dims):
            return self
        return Term(self.e, self.e.broadcast(self.instr, dims))

    def summed(self) -> Term:
        """The sum of all elements, a scalar."""
        rank = self.instr.array.rank
        return self if not rank else Term(self.e, self.e.total(self.instr, *range(rank)))
