"""Between pairs of instructions and the formulas over them."""

from __future__ import annotations

from compiler.hlo.builder import HloBuilder
from compiler.hlo.dtypes import C64, DType
from compiler.hlo.expression import Expr
from compiler.passes.pair_types.complex_arithmetic import Complex
from compiler.passes.pair_types.int64_arithmetic import MASK, Int64
from compiler.passes.pair_types.values import Pair, part_dtype

Wide = Complex | Int64


def wide(b: HloBuilder, pair: Pair) -> Wide:
    """A pair in formulas that `b` writes down."""
    first, second = Expr(b, pair.first), Expr(b, pair.second)
    return Complex(first, second) if pair.dtype.is_complex else Int64(first, second, pair.dtype)


def complex_of(b: HloBuilder, pair: Pair) -> Complex:
    """`wide` of a pair that is complex."""
    value = wide(b, pair)
    assert isinstance(value, Complex)
    return value


def int64_of(b: HloBuilder, pair: Pair) -> Int64:
    """`wide` of a pair that is an integer."""
    value = wide(b, pair)
    assert isinstance(value, Int64)
    return value


def pair_of(value: Wide) -> Pair:
    """What a formula gave."""
    dtype = value.dtype if isinstance(value, Int64) else C64
    return Pair(value.first.instr, value.second.instr, dtype)


def constant_pair(b: HloBuilder, dtype: DType, value: int, dims: tuple[int, ...]) -> Pair:
    """An array of one whole number."""
    part = part_dtype(dtype)
    assert part is not None
    words = (value, 0) if dtype.is_complex else (value & MASK, value >> 32 & MASK)
    first, second = (b.full(part, dims, word) for word in words)
    return Pair(first, second, dtype)
