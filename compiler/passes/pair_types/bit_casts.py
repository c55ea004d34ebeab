"""bitcast-convert from and to pairs: words in memory order along a new or old last dimension."""

from __future__ import annotations

from compiler.hlo.dtypes import BY_NAME, U32, DType
from compiler.hlo.ir import HloInstruction
from compiler.passes.pair_types.emitter import Emitter
from compiler.passes.pair_types.scope import Scope, refuse
from compiler.passes.pair_types.values import Pair, Value, is_wide, part_dtype
from compiler.rewrite import make

Instr = HloInstruction


def bitcast_rule(scope: Scope, instr: Instr) -> Value:
    """The same bits as another type."""
    e = Emitter(instr)
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
    first, second = (e.bitcast(x, part) for x in value.parts)
    return Pair(first, second, target)


def _narrowed(e: Emitter, instr: Instr, value: Pair) -> Instr:
    """A pair as words: ``[.., 2]`` of 32 bits, ``[.., 4]`` of 16, ``[.., 8]`` of 8."""
    target = instr.array.dtype
    if target.bits < 8 or target.name == "pred":
        raise refuse(instr, f"its bits as {target}; go through u32")
    words = [make.reshape(e.bitcast(x, U32), (*value.dims, 1)) for x in value.parts]
    both = e.op("concatenate", U32, (*value.dims, 2), tuple(words), dimensions=(len(value.dims),))
    return narrow_words(e, both, target, instr.array.dims)


def narrow_words(e: Emitter, words: Instr, target: DType, dims: tuple[int, ...]) -> Instr:
    """u32 words as narrower elements, lowest first, in an array of `dims`."""
    if target.bits == 32:
        return make.reshape(e.bitcast(words, target), dims)
    count = 32 // target.bits
    part = BY_NAME[f"u{target.bits}"]
    wide = (*words.array.dims, 1)
    pieces = [
        make.reshape(e.convert(e.shr(words, k * target.bits), part), wide) for k in range(count)
    ]
    shape = (*words.array.dims, count)
    axis = len(words.array.dims)
    joined = e.op("concatenate", part, shape, tuple(pieces), dimensions=(axis,))
    return make.reshape(e.bitcast(joined, target), dims)


def _widened(e: Emitter, instr: Instr, source: Instr) -> Pair:
    """Words along the last dimension as pairs."""
    dtype = source.array.dtype
    if dtype.bits < 8 or dtype.name == "pred":
        raise refuse(instr, f"from the bits of {dtype}; go through u32")
    dims = instr.array.dims
    count = 32 // dtype.bits
    words = make.reshape(source, (*dims, 2, count))
    part = dtype if dtype.bits == 32 else BY_NAME[f"u{dtype.bits}"]
    bits = e.bitcast(words, part)
    target = part_dtype(instr.array.dtype)
    assert target is not None
    halves = [_word(e, bits, half) for half in range(2)]
    first, second = (e.bitcast(h, target) for h in halves)
    return Pair(first, second, instr.array.dtype)


def _word(e: Emitter, bits: Instr, half: int) -> Instr:
    """u32 number `half` of each pair: its elements shifted to their places."""
    *dims, _, count = bits.array.dims
    total: Instr | None = None
    for place in range(count):
        bounds = (*((0, d, 1) for d in dims), (half, half + 1, 1), (place, place + 1, 1))
        piece = make.reshape(make.slice_(bits, bounds), tuple(dims))
        if count == 1:
            return e.bitcast(piece, U32)
        raised = e.shl(e.convert(piece, U32), place * (32 // count))
        total = raised if total is None else e.or_(total, raised)
    assert total is not None
    return total
