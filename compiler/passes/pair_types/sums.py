"""Sums of 64-bit integers over dimensions."""

from __future__ import annotations

from compiler.hlo.builder import HloBuilder
from compiler.hlo.dtypes import U32
from compiler.hlo.ir import HloComputation, HloModule
from compiler.hlo.shape import ArrayShape
from compiler.passes.pair_types.values import Pair
from compiler.passes.pair_types.wide import constant_pair, int64_of
from compiler.rewrite.emitter import Emitter


def sum_pairs(e: Emitter, a: Pair, dimensions: tuple[int, ...]) -> Pair:
    """The sum over `dimensions` modulo 2**64."""
    if not dimensions:
        return a
    zero = constant_pair(e, a.dtype, 0, ())
    total = e.reduce(a.parts, zero.parts, dimensions, _adder(e.module, a))
    first, second = (e.get_tuple_element(total, k) for k in range(2))
    return Pair(first, second, a.dtype)


def _adder(module: HloModule, like: Pair) -> HloComputation:
    """``(x, y) -> x + y`` of pairs of words."""
    b = HloBuilder("add_pairs", module)
    names = ("x_low", "x_high", "y_low", "y_high")
    words = [b.parameter(ArrayShape(U32, ()), name) for name in names]
    x, y = (int64_of(b, Pair(words[k], words[k + 1], like.dtype)) for k in (0, 2))
    total = x + y
    return b.build(b.tuple([part.instr for part in total]))
