"""Random opcodes: the counter-based generators of rng-bit-generator, and the host-seeded rng.

ThreeFry-2x32 and Philox-4x32 follow Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"
(2011); how counters map to elements follows XLA, so the bits agree with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from compiler.hlo.dtypes import DType
from compiler.hlo.evaluator.context import (
    Array,
    Context,
    Handler,
    Operands,
    Value,
    finish,
    unsupported,
)
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import leaves

Words: TypeAlias = npt.NDArray[np.uint32]

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_THREEFRY_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PHILOX_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_PHILOX_WEYL = (np.uint32(0x9E3779B9), np.uint32(0xBB67AE85))


def _rng_bit_generator(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    state = np.asarray(operands[0])
    words = state.reshape(-1).astype(np.uint64)
    shape = leaves(instr.shape)[1]
    algorithm = instr.algorithm
    if algorithm == "rng_three_fry":
        bits, words = _threefry_bits(words, shape.dims, shape.dtype)
    elif algorithm in ("rng_philox", "rng_default"):
        bits, words = _philox_bits(words, shape.dims, shape.dtype)
    else:
        raise unsupported(instr, f"algorithm={algorithm}; use rng_three_fry or rng_philox")
    return words.reshape(state.shape), bits.view(shape.dtype.numpy)


def _split(words: Array) -> tuple[Words, Words]:
    """64-bit values as (low, high) 32-bit words."""
    return (words & _LOW).astype(np.uint32), (words >> _HALF).astype(np.uint32)


def _join(low: Words, high: Words) -> Array:
    return np.asarray(low.astype(np.uint64) | (high.astype(np.uint64) << _HALF))


def threefry_2x32(key: tuple[Words, Words], counter: tuple[Words, Words]) -> tuple[Words, Words]:
    """20 rounds of ThreeFry over arrays of counters."""
    schedule = (key[0], key[1], key[0] ^ key[1] ^ np.uint32(0x1BD11BDA))
    x, y = counter[0] + schedule[0], counter[1] + schedule[1]
    for group in range(5):
        for rotation in _THREEFRY_ROTATIONS[group % 2]:
            x = x + y
            y = (y << np.uint32(rotation)) | (y >> np.uint32(32 - rotation))
            y = y ^ x
        x = x + schedule[(group + 1) % 3]
        y = y + schedule[(group + 2) % 3] + np.uint32(group + 1)
    return x, y


def _threefry_bits(words: Array, dims: Sequence[int], dtype: DType) -> tuple[Array, Array]:
    """Bits of the given shape, and the state (key, counter) after it."""
    key = _split(words[0])
    if dtype.bits == 64:
        counters = words[1] + np.arange(math.prod(dims), dtype=np.uint64)
        low, high = threefry_2x32(key, _split(counters))
        advanced = words[1] + np.uint64(counters.size)
        return _join(low, high).reshape(dims), np.asarray([words[0], advanced], np.uint64)
    # Each counter gives two words, which become neighbours along the first even dimension
    # (or the largest one, whose last element is then dropped).
    axis = _split_axis(dims)
    whole = tuple(dims) or (2,)
    half = [(n + 1) // 2 if d == axis else n for d, n in enumerate(whole)]
    counters = words[1] + np.arange(math.prod(half), dtype=np.uint64)
    pair = threefry_2x32(key, _split(counters))
    stacked = np.stack([word.reshape(half) for word in pair], axis + 1)
    joined = [2 * n if d == axis else n for d, n in enumerate(half)]
    bits = stacked.reshape(joined)[tuple(slice(n) for n in whole)]
    if not dims:
        bits = bits[0]
    advanced = words[1] + np.uint64(counters.size)
    return _narrow(bits, dtype), np.asarray([words[0], advanced], np.uint64)


def _split_axis(dims: Sequence[int]) -> int:
    even = [d for d, n in enumerate(dims) if n % 2 == 0]
    if even or not dims:
        return even[0] if even else 0
    return max(range(len(dims)), key=lambda d: (dims[d], -d))


def _narrow(bits: Array, dtype: DType) -> Array:
    """Truncate 32-bit words to the element width; contiguous, so that it can be viewed."""
    return np.ascontiguousarray(bits).astype(f"u{dtype.bits // 8}").reshape(bits.shape)


def philox_4x32(key: tuple[Words, Words], state: Sequence[Words]) -> tuple[Words, ...]:
    """10 rounds of Philox over arrays of 128-bit counters."""
    k0, k1 = key
    a, b, c, d = state
    for _ in range(10):
        low0, high0 = _split(a.astype(np.uint64) * _PHILOX_MULTIPLIERS[0])
        low1, high1 = _split(c.astype(np.uint64) * _PHILOX_MULTIPLIERS[1])
        a, b, c, d = high1 ^ b ^ k0, low1, high0 ^ d ^ k1, low0
        k0, k1 = k0 + _PHILOX_WEYL[0], k1 + _PHILOX_WEYL[1]
    return a, b, c, d


def _philox_bits(words: Array, dims: Sequence[int], dtype: DType) -> tuple[Array, Array]:
    """Bits of the given shape, and the state (key, counter low[, counter high]) after it."""
    count = math.prod(dims)
    # A state of two words has no upper half of the counter: XLA puts the key there.
    key, low_start = words[0], words[1]
    high_start = words[2] if len(words) > 2 else key
    blocks = -(-count // (2 if dtype.bits == 64 else 4))
    low = low_start + np.arange(blocks, dtype=np.uint64)
    high = high_start + (low < low_start).astype(np.uint64)
    outputs = philox_4x32(_split(np.asarray(key)), [*_split(low), *_split(high)])
    if dtype.bits == 64:
        pairs = (_join(outputs[0], outputs[1]), _join(outputs[2], outputs[3]))
        bits = np.stack(pairs, -1).reshape(-1)[:count].reshape(dims)
    else:
        bits = _narrow(np.stack(outputs, -1).reshape(-1)[:count].reshape(dims), dtype)
    advanced = low_start + np.uint64(blocks)
    carried = words[2:] + np.uint64(advanced < low_start)
    return bits, np.concatenate([np.asarray([key, advanced], np.uint64), carried])


def _rng(ctx: Context, instr: HloInstruction, operands: Operands) -> Array:
    """Host randomness from the options' seed; XLA promises no particular values here."""
    low, high = operands
    dims, dtype = instr.array.dims, instr.array.dtype
    distribution = instr.distribution
    if distribution == "rng_normal":
        drawn = ctx.generator.standard_normal(dims) * np.float64(high) + np.float64(low)
        return finish(ctx, instr, np.asarray(drawn))
    if distribution != "rng_uniform":
        raise unsupported(instr, f"distribution={distribution}")
    if dtype.name == "pred":
        return ctx.generator.integers(0, 2, dims).astype(np.bool_)
    if dtype.is_integer:
        beyond = max(int(high), int(low) + 1)  # without a number between them it is the first
        values = ctx.generator.integers(int(low), beyond, dims, dtype=np.int64)
        return finish(ctx, instr, np.asarray(values))
    drawn = ctx.generator.random(dims) * (np.float64(high) - np.float64(low)) + np.float64(low)
    return finish(ctx, instr, np.asarray(drawn))


def _rng_get_and_update_state(ctx: Context, instr: HloInstruction, operands: Operands) -> Array:
    """Return the 128-bit state of the device, then advance it by `delta`."""
    state = ctx.rng_state
    ctx.rng_state = state + instr.delta
    halves = [state & 0xFFFFFFFFFFFFFFFF, (state >> 64) & 0xFFFFFFFFFFFFFFFF]
    return np.asarray(halves, np.uint64).reshape(instr.array.dims)


RANDOM_HANDLERS: dict[str, Handler] = {
    "rng": _rng,
    "rng-bit-generator": _rng_bit_generator,
    "rng-get-and-update-state": _rng_get_and_update_state,
}
