"""Emit elementwise HLO with shapes worked out: ``e.add(x, y)``, ``e.u32(5, x.dims)``.

All methods take arrays of equal dimensions. Constants are scalars broadcast to the dimensions.
"""

from __future__ import annotations

from compiler.hlo.dtypes import F32, PRED, S32, U32, DType
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape
from compiler.rewrite import make
from compiler.rewrite.graph import Attrs, emit

Instr = HloInstruction
Dims = tuple[int, ...]


class Emitter:
    """Appends instructions next to `near`, whose metadata they inherit."""

    def __init__(self, near: Instr) -> None:
        self.near = near

    def op(
        self, opcode: str, dtype: DType, dims: Dims, operands: tuple[Instr, ...], **attrs: object
    ) -> Instr:
        """Any array operation."""
        values: Attrs = dict(attrs)
        return emit(self.near, opcode, ArrayShape(dtype, dims), operands, values)

    def unary(self, opcode: str, x: Instr) -> Instr:
        """An operation that keeps dtype and dimensions."""
        return emit(self.near, opcode, ArrayShape(x.array.dtype, x.array.dims), (x,))

    def binary(self, opcode: str, x: Instr, y: Instr) -> Instr:
        """An operation of two arrays of one shape."""
        return emit(self.near, opcode, ArrayShape(x.array.dtype, x.array.dims), (x, y))

    def constant(self, dtype: DType, value: object, dims: Dims) -> Instr:
        """An array of one value."""
        return make.splat(self.near, ArrayShape(dtype, dims), value)

    def like(self, x: Instr, value: object) -> Instr:
        """An array of one value with the shape of `x`."""
        return self.constant(x.array.dtype, value, x.array.dims)

    def u32(self, value: int, dims: Dims) -> Instr:
        """A u32 array of one value."""
        return self.constant(U32, value, dims)

    def f32(self, value: float, dims: Dims) -> Instr:
        """An f32 array of one value."""
        return self.constant(F32, value, dims)

    def add(self, x: Instr, y: Instr) -> Instr:
        """``x + y``."""
        return self.binary("add", x, y)

    def sub(self, x: Instr, y: Instr) -> Instr:
        """``x - y``."""
        return self.binary("subtract", x, y)

    def mul(self, x: Instr, y: Instr) -> Instr:
        """``x * y``."""
        return self.binary("multiply", x, y)

    def div(self, x: Instr, y: Instr) -> Instr:
        """``x / y``."""
        return self.binary("divide", x, y)

    def fma(self, x: Instr, y: Instr, z: Instr) -> Instr:
        """``x * y + z`` of f32, rounded once."""
        return emit(self.near, "multiply-add", ArrayShape(F32, x.array.dims), (x, y, z))

    def and_(self, x: Instr, y: Instr) -> Instr:
        """``x & y``."""
        return self.binary("and", x, y)

    def or_(self, x: Instr, y: Instr) -> Instr:
        """``x | y``."""
        return self.binary("or", x, y)

    def xor(self, x: Instr, y: Instr) -> Instr:
        """``x ^ y``."""
        return self.binary("xor", x, y)

    def not_(self, x: Instr) -> Instr:
        """``~x``."""
        return self.unary("not", x)

    def max(self, x: Instr, y: Instr) -> Instr:
        """The larger; NaN wins."""
        return self.binary("maximum", x, y)

    def min(self, x: Instr, y: Instr) -> Instr:
        """The smaller; NaN wins."""
        return self.binary("minimum", x, y)

    def neg(self, x: Instr) -> Instr:
        """``-x``."""
        return self.unary("negate", x)

    def abs(self, x: Instr) -> Instr:
        """``|x|``."""
        return self.unary("abs", x)

    def shl(self, x: Instr, amount: Instr | int) -> Instr:
        """Shift left; 0 from the width on."""
        return self._shift("shift-left", x, amount)

    def shr(self, x: Instr, amount: Instr | int) -> Instr:
        """Shift right with zeros; 0 from the width on."""
        return self._shift("shift-right-logical", x, amount)

    def sra(self, x: Instr, amount: Instr | int) -> Instr:
        """Shift the s32 bits of `x` right with the sign."""
        signed = self.bitcast(x, S32)
        if isinstance(amount, Instr):
            amount = self.bitcast(amount, S32)
        return self.bitcast(self._shift("shift-right-arithmetic", signed, amount), x.array.dtype)

    def _shift(self, opcode: str, x: Instr, amount: Instr | int) -> Instr:
        if not isinstance(amount, Instr):
            amount = self.like(x, amount)
        return self.binary(opcode, x, amount)

    def compare(self, direction: str, x: Instr, y: Instr | float) -> Instr:
        """A pred array."""
        if not isinstance(y, Instr):
            y = self.like(x, y)
        return self.op("compare", PRED, x.array.dims, (x, y), direction=direction)

    def eq(self, x: Instr, y: Instr | float) -> Instr:
        """``x == y``."""
        return self.compare("EQ", x, y)

    def ne(self, x: Instr, y: Instr | float) -> Instr:
        """``x != y``."""
        return self.compare("NE", x, y)

    def lt(self, x: Instr, y: Instr | float) -> Instr:
        """``x < y``, in the signedness of their type."""
        return self.compare("LT", x, y)

    def gt(self, x: Instr, y: Instr | float) -> Instr:
        """``x > y``, in the signedness of their type."""
        return self.compare("GT", x, y)

    def is_negative(self, x: Instr) -> Instr:
        """Whether the top bit of a 32-bit integer is set."""
        return self.lt(self.bitcast(x, S32), 0)

    def select(self, condition: Instr, x: Instr, y: Instr) -> Instr:
        """``condition ? x : y``; the condition may be a scalar."""
        shape = ArrayShape(x.array.dtype, x.array.dims)
        return emit(self.near, "select", shape, (condition, x, y))

    def convert(self, x: Instr, dtype: DType) -> Instr:
        """The value in another type."""
        if x.array.dtype == dtype:
            return x
        return self.op("convert", dtype, x.array.dims, (x,))

    def bitcast(self, x: Instr, dtype: DType) -> Instr:
        """The bits as another type of the same width."""
        if x.array.dtype == dtype:
            return x
        return self.op("bitcast-convert", dtype, x.array.dims, (x,))

    def broadcast(self, x: Instr, dims: Dims) -> Instr:
        """A scalar repeated; an array stays."""
        return x if x.array.dims == dims else make.broadcast(x, dims, ())
