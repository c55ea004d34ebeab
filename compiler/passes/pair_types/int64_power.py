"""Integer powers of 64-bit integers: 64 squarings in a loop."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.diagnostics import UnsupportedError
from compiler.hlo.call_graph import control_computations
from compiler.hlo.ir import HloInstruction
from compiler.passes.pair_types.formulas import select
from compiler.passes.pair_types.int64_arithmetic import Int64
from compiler.passes.pair_types.values import Pair
from compiler.passes.pair_types.wide import int64_of
from compiler.rewrite.emitter import Emitter

_STEPS = 64
"""Bits of the exponent."""


def power(base: Int64, exponent: Int64) -> Int64:
    """``base ** exponent`` modulo 2**64; a negative exponent gives the truncated reciprocal."""
    result = _loop(base, exponent)
    if not base.dtype.is_signed:
        return result
    zero, one, minus_one = (base.like(n) for n in (0, 1, -1))
    is_odd = (exponent.first & 1).differs(0)
    alternating = select(is_odd, minus_one, one)
    inverse = select(base.compare("EQ", one), one, zero)
    inverse = select(base.compare("EQ", minus_one), alternating, inverse)
    return select(exponent.is_negative(), inverse, result)


def _loop(base: Int64, exponent: Int64) -> Int64:
    """Square and multiply, lowest bit first."""
    e = base.first.b
    assert isinstance(e, Emitter)
    if e.computation not in control_computations(e.module):
        message = f"%{e.near.name}: power of {base.dtype} inside a reducer; multiply instead"
        raise UnsupportedError(message, e.near.span)

    def step(
        b: Emitter, _: HloInstruction, state: Sequence[HloInstruction]
    ) -> list[HloInstruction]:
        result, square, left = (
            int64_of(b, Pair(state[k], state[k + 1], base.dtype)) for k in (0, 2, 4)
        )
        is_odd = (left.first & 1).differs(0)
        result = select(is_odd, result * square, result)
        square = square * square
        rest = left.shift_right_logical(left.first.like(1))
        return [part.instr for value in (result, square, rest) for part in value]

    start = [part.instr for value in (base.like(1), base, exponent) for part in value]
    first, second, *_ = e.loop(_STEPS, start, step)
    return int64_of(e, Pair(first, second, base.dtype))
