"""bitcast-convert between widths of up to 32 bits: shifts and joins along the last dimension.

Element 0 of the narrow array has the lowest bits, as in memory. Types of 64 bits become pairs of
words later, and so do their casts.
"""

from __future__ import annotations

from compiler.hlo.dtypes import BY_NAME, U32, DType
from compiler.hlo.ir import HloInstruction
from compiler.passes.expanders.emitter import Emitter

Instr = HloInstruction


def change_width(instr: Instr) -> Instr | None:
    """A cast to a wider or a narrower type; None for others."""
    source, target = instr.operands[0].array.dtype, instr.array.dtype
    widths = {source.bits, target.bits}
    if len(widths) == 1 or (64 in widths and min(widths) >= 8):
        return None
    e = Emitter.at(instr)
    if 64 in widths:
        return _through_words(e, instr)
    bits = _same_width(e, instr.operands[0], _unsigned(source))
    cast = _joined if target.bits > source.bits else _split
    return _same_width(e, cast(e, bits, target.bits), target)


def _through_words(e: Emitter, instr: Instr) -> Instr:
    """64 bits to or from less than 8: by way of two u32."""
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


def _split(e: Emitter, value: Instr, width: int) -> Instr:
    """Elements of `width` bits along a new last dimension."""
    words, dims = e.cast(value, U32), value.array.dims
    part = BY_NAME[f"u{width}"]
    pieces: list[Instr] = []
    for shift in range(0, value.array.dtype.bits, width):
        moved = e.binary("shift-right-logical", words, e.like(words, shift)) if shift else words
        low = e.and_(moved, e.like(moved, (1 << width) - 1))
        pieces.append(e.reshape(e.cast(low, part), (*dims, 1)))
    return e.join(pieces, -1)


def _joined(e: Emitter, value: Instr, width: int) -> Instr:
    """Elements of `width` bits out of those along the last dimension."""
    step, dims = value.array.dtype.bits, value.array.dims
    words = e.cast(value, U32)
    total: Instr | None = None
    for place in range(width // step):
        piece = e.reshape(e.part(words, -1, place, place + 1), dims[:-1])
        if place:
            piece = e.binary("shift-left", piece, e.like(piece, place * step))
        total = piece if total is None else e.or_(total, piece)
    assert total is not None
    return e.cast(total, BY_NAME[f"u{width}"])
