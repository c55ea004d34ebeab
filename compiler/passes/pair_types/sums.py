"""Sums of 64-bit integers over dimensions."""

from __future__ import annotations

from compiler.hlo.dtypes import U32
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.shape import ArrayShape, TupleShape
from compiler.passes.pair_types.emitter import Emitter
from compiler.passes.pair_types.int64_arithmetic import Int64
from compiler.passes.pair_types.values import Pair
from compiler.rewrite.graph import emit

Instr = HloInstruction
_WORD = ArrayShape(U32, ())


def sum_pairs(i: Int64, near: Instr, a: Pair, dimensions: tuple[int, ...]) -> Pair:
    """The sum over `dimensions` modulo 2**64."""
    assert near.computation is not None
    assert near.computation.module is not None
    dims = tuple(d for k, d in enumerate(a.dims) if k not in dimensions)
    if not dimensions:
        return a
    part = ArrayShape(U32, dims)
    zero = i.constant(0, (), a.dtype)
    attrs = {"dimensions": dimensions, "to_apply": _adder(near.computation.module, a)}
    shape = TupleShape((part, part))
    total = emit(near, "reduce", shape, (*a.parts, *zero.parts), attrs)
    first, second = (
        emit(total, "get-tuple-element", part, (total,), {"index": k}) for k in range(2)
    )
    return Pair(first, second, a.dtype)


def _adder(module: HloModule, like: Pair) -> HloComputation:
    """``(x, y) -> x + y`` of pairs of words."""
    computation = module.add_computation(HloComputation("add_pairs"))
    parameters = [
        computation.add(HloInstruction("parameter", name, _WORD, (), {"parameter_number": k}))
        for k, name in enumerate(("x_low", "x_high", "y_low", "y_high"))
    ]
    x = Pair(parameters[0], parameters[1], like.dtype)
    y = Pair(parameters[2], parameters[3], like.dtype)
    total = Int64(Emitter(parameters[0])).add(x, y)
    shape = TupleShape((_WORD, _WORD))
    computation.root = emit(parameters[0], "tuple", shape, total.parts)
    return computation
