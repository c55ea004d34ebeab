"""bitcast-convert between widths: shifts and joins along the last dimension.

Element 0 of the narrow array has the lowest bits, as in memory. What is left are casts within one
width, casts between 32 and 64 bits, which are about pairs of words, and those of 6-bit floats,
whose codes are known to `pair_types.tiny_floats` alone.
"""

from __future__ import annotations

from compiler.hlo.dtypes import BY_NAME, U32, DType
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape
from compiler.rewrite.emitter import Emitter

Instr = HloInstruction
_WORDS = {32, 64}


def changes_width(instr: Instr) -> bool:
    """Whether this is a cast that `change_width` expands."""
    if instr.opcode != "bitcast-convert" or not isinstance(instr.shape, ArrayShape):
        return False
    widths = {instr.operands[0].array.dtype.bits, instr.array.dtype.bits}
    return len(widths) == 2 and widths != _WORDS and 6 not in widths


def change_width(instr: Instr) -> Instr | None:
    """A cast to a wider or a narrower type; None for others."""
    if not changes_width(instr):
        return None
    source, target = instr.operands[0].array.dtype, instr.array.dtype
    e = Emitter.at(instr)
    if 64 in (source.bits, target.bits):
        return _through_words(e, instr)
    bits = _same_width(e, instr.operands[0], _unsigned(source))
    if target.bits > source.bits:
        made = e.cast(joined_bits(e, bits, source.bits), _unsigned(target))
    else:
        made = split_bits(e, bits, source.bits, _unsigned(target))
    return _same_width(e, made, target)


def _through_words(e: Emitter, instr: Instr) -> Instr:
    """64 bits to or from less than 32: by way of two u32."""
    value, target = instr.operands[0], instr.array.dtype
    if target.bits == 64:
        dims, step = value.array.dims[:-1], value.array.dtype.bits
        parts = e.reshape(value, (*dims, 2, 32 // step))
        return e.bitcast_convert(e.bitcast_convert(parts, U32), target)
    words = e.bitcast_convert(value, U32)
    return e.reshape(e.bitcast_convert(words, target), instr.array.dims)


def _unsigned(dtype: DType) -> DType:
    return BY_NAME[f"u{dtype.bits}"]


def _same_width(e: Emitter, value: Instr, dtype: DType) -> Instr:
    return value if value.array.dtype == dtype else e.bitcast_convert(value, dtype)


def split_bits(e: Emitter, value: Instr, bits: int, part: DType) -> Instr:
    """The low `bits` of unsigned integers as elements of `part` along a new last dimension."""
    words, dims, width = e.cast(value, U32), value.array.dims, part.bits
    pieces: list[Instr] = []
    for shift in range(0, bits, width):
        moved = e.binary("shift-right-logical", words, e.like(words, shift)) if shift else words
        low = e.and_(moved, e.like(moved, (1 << width) - 1))
        pieces.append(e.reshape(e.cast(low, part), (*dims, 1)))
    return e.join(pieces, -1)


def joined_bits(e: Emitter, value: Instr, width: int) -> Instr:
    """u32 words out of the unsigned integers of `width` bits along the last dimension."""
    *dims, count = value.array.dims
    pieces = e.cast(value, U32)
    total: Instr | None = None
    for place in range(count):
        piece = e.reshape(e.part(pieces, -1, place, place + 1), tuple(dims))
        if place:
            piece = e.binary("shift-left", piece, e.like(piece, place * width))
        total = piece if total is None else e.or_(total, piece)
    assert total is not None
    return total
