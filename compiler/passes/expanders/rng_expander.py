"""Random bits: rng-bit-generator as arithmetic on u32 words, bit for bit as XLA computes it.

State and 64-bit results are taken apart into and put together from words ``u32[.., 2]`` (low
word first).
"""

from __future__ import annotations

import math

from compiler.diagnostics import UnsupportedError
from compiler.hlo.dtypes import BY_NAME, U32
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.shape import ArrayShape, TupleShape
from compiler.passes.context import PassContext
from compiler.passes.expanders.counter_generators import (
    Words,
    advance,
    count_up,
    philox_4x32,
    threefry_2x32,
)
from compiler.passes.expanders.driver import expand
from compiler.rewrite.emitter import Emitter

Instr = HloInstruction
Dims = tuple[int, ...]
_U64 = BY_NAME["u64"]
_UNSIGNED = {8: BY_NAME["u8"], 16: BY_NAME["u16"], 32: U32}


def expand_random(module: HloModule, context: PassContext) -> bool:
    """Expand every `rng-bit-generator`."""
    return expand(module, context, {"rng-bit-generator": expand_bit_generator})


def expand_bit_generator(instr: Instr) -> Instr | None:
    """The tuple (state after, bits)."""
    e = Emitter.at(instr)
    state = instr.operands[0]
    if state.array.dtype != _U64:
        raise UnsupportedError(
            f"%{instr.name}: a state of {state.array.dtype}; use u64[2] or u64[3]", instr.span
        )
    assert isinstance(instr.shape, TupleShape)
    shape = instr.shape.elements[1]
    assert isinstance(shape, ArrayShape)
    words = _state_words(e, state)
    algorithm = instr.algorithm
    if algorithm == "rng_three_fry":
        if len(words) != 2:
            message = f"%{instr.name}: rng_three_fry with a state of {len(words)} u64; it has 2"
            raise UnsupportedError(message, instr.span)
        after, bits = _threefry(e, words, shape)
    elif algorithm in ("rng_philox", "rng_default"):
        after, bits = _philox(e, words, shape)
    else:
        raise UnsupportedError(
            f"%{instr.name}: algorithm={algorithm}; use rng_three_fry or rng_philox", instr.span
        )
    return e.tuple([_state(e, after, state.array.dims), bits])


def _state_words(e: Emitter, state: Instr) -> list[tuple[Instr, Instr]]:
    """The state's 64-bit numbers as scalars (low, high)."""
    count = state.array.element_count
    words = e.bitcast_convert(e.shaped(state, (count,)), U32)
    found = [
        e.reshape(e.slice(words, (i, half), (i + 1, half + 1)), ())
        for i in range(count)
        for half in (0, 1)
    ]
    return list(zip(found[::2], found[1::2], strict=True))


def _state(e: Emitter, words: list[tuple[Instr, Instr]], dims: Dims) -> Instr:
    flat = e.concatenate([e.reshape(w, (1,)) for pair in words for w in pair], 0)
    return e.shaped(e.bitcast_convert(e.reshape(flat, (len(words), 2)), _U64), dims)


def _stack(e: Emitter, words: Words, dims: Dims, axis: int) -> Instr:
    """Words ``[count]`` as ``dims`` side by side in a new dimension."""
    wide = (*dims[:axis], 1, *dims[axis:])
    return e.concatenate([e.reshape(word, wide) for word in words], axis)


def _as_type(e: Emitter, words: Instr, shape: ArrayShape) -> Instr:
    """Words cut to the width of the result's elements."""
    narrow = e.cast(words, _UNSIGNED[shape.dtype.bits])
    return narrow if narrow.array.dtype == shape.dtype else e.bitcast_convert(narrow, shape.dtype)


def _wide(e: Emitter, pairs: Instr, shape: ArrayShape) -> Instr:
    """``u32[.., 2]`` as 64-bit elements."""
    return e.bitcast_convert(pairs, shape.dtype)


def _threefry(
    e: Emitter, words: list[tuple[Instr, Instr]], shape: ArrayShape
) -> tuple[list[tuple[Instr, Instr]], Instr]:
    """Each counter gives two words: one 64-bit element, or two neighbours."""
    key, start = words
    dims = shape.dims
    if shape.dtype.bits == 64:
        half, axis = dims, len(dims)
    else:
        axis = _split_axis(dims)
        whole = dims or (2,)
        half = tuple((n + 1) // 2 if d == axis else n for d, n in enumerate(whole))
    count = math.prod(half)
    pair = threefry_2x32(e, key, count_up(e, *start, count))
    low, high, _ = advance(e, *start, count)
    after = [key, (low, high)]
    if shape.dtype.bits == 64:
        return after, _wide(e, _stack(e, pair, half, axis), shape)
    joined = tuple(2 * n if d == axis else n for d, n in enumerate(half))
    bits = e.part(e.reshape(_stack(e, pair, half, axis + 1), joined), axis, 0, (dims or (1,))[axis])
    return after, _as_type(e, e.shaped(bits, dims), shape)


def _split_axis(dims: Dims) -> int:
    """The first even dimension, or the largest."""
    even = [d for d, n in enumerate(dims) if n % 2 == 0]
    if even or not dims:
        return even[0] if even else 0
    return max(range(len(dims)), key=lambda d: (dims[d], -d))


def _philox(
    e: Emitter, words: list[tuple[Instr, Instr]], shape: ArrayShape
) -> tuple[list[tuple[Instr, Instr]], Instr]:
    """Each counter gives four words; without an upper half of the counter, the key is there."""
    key, start = words[:2]
    upper = words[2] if len(words) > 2 else key
    is_wide = shape.dtype.bits == 64
    needed = math.prod(shape.dims) * (2 if is_wide else 1)
    blocks = -(-needed // 4)
    low = count_up(e, *start, blocks)
    carried = e.and_(
        e.compare(low[1], e.broadcast(start[1], (blocks,)), "EQ"),
        e.compare(low[0], e.broadcast(start[0], (blocks,)), "LT"),
    )
    carried = e.or_(carried, e.compare(low[1], e.broadcast(start[1], (blocks,)), "LT"))
    carry = e.cast(carried, U32)
    upper_start = e.broadcast(upper[0], (blocks,))
    upper_low = e.add(upper_start, carry)
    spill = e.cast(e.compare(upper_low, upper_start, "LT"), U32)
    upper_high = e.add(e.broadcast(upper[1], (blocks,)), spill)
    outputs = philox_4x32(e, key, (*low, upper_low, upper_high))
    flat = e.reshape(_stack(e, outputs, (blocks,), 1), (4 * blocks,))
    flat = e.part(flat, 0, 0, needed)
    after_low, after_high, out = advance(e, *start, blocks)
    after = [key, (after_low, after_high)]
    for word in words[2:]:
        low_word = e.add(word[0], out)
        after.append((low_word, e.add(word[1], e.cast(e.compare(low_word, out, "LT"), U32))))
    if is_wide:
        return after, _wide(e, e.reshape(flat, (*shape.dims, 2)), shape)
    return after, _as_type(e, e.shaped(flat, shape.dims), shape)
