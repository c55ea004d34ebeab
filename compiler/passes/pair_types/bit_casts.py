"""bitcast-convert from and to pairs: two words along a new or old last dimension.

Other widths go through words of 32 bits (`compiler.passes.expanders.bit_casts`).
"""

from __future__ import annotations

from compiler.hlo.dtypes import DType
from compiler.hlo.expression import Expr
from compiler.hlo.ir import HloInstruction
from compiler.passes.pair_types.scope import Scope
from compiler.passes.pair_types.values import Pair, Value, is_wide, part_dtype
from compiler.rewrite import make
from compiler.rewrite.emitter import Emitter

Instr = HloInstruction


def bitcast_rule(scope: Scope, instr: Instr) -> Value:
    """The same bits as another type."""
    e = Emitter.at(instr)
    source, target = instr.operands[0], instr.array.dtype
    value = scope.value(source)
    if isinstance(value, Pair) and is_wide(instr.shape):
        return _recast(e, value, target)
    if isinstance(value, Pair):
        return _narrowed(e, instr, value)
    return _widened(e, instr, source)


def _recast(e: Emitter, value: Pair, target: DType) -> Pair:
    part = part_dtype(target)
    assert part is not None
    first, second = (Expr(e, x).bits(part).instr for x in value.parts)
    return Pair(first, second, target)


def _narrowed(e: Emitter, instr: Instr, value: Pair) -> Instr:
    """A pair as words of 32 bits along a new last dimension."""
    axis, target = len(value.dims), instr.array.dtype
    words = tuple(
        make.reshape(Expr(e, x).bits(target).instr, (*value.dims, 1)) for x in value.parts
    )
    return e.concatenate(words, axis)


def _widened(e: Emitter, instr: Instr, source: Instr) -> Pair:
    """Words along the last dimension as pairs."""
    target = part_dtype(instr.array.dtype)
    assert target is not None
    first, second = (Expr(e, _word(source, half)).bits(target).instr for half in range(2))
    return Pair(first, second, instr.array.dtype)


def _word(source: Instr, half: int) -> Instr:
    """Number `half` of each two words."""
    dims = source.array.dims[:-1]
    bounds = (*((0, d, 1) for d in dims), (half, half + 1, 1))
    return make.reshape(make.slice_(source, bounds), dims)
