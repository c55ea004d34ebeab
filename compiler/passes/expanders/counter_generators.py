"""ThreeFry-2x32 and Philox-4x32 on arrays of u32 words.

After Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3" (2011).
"""

from __future__ import annotations

from compiler.hlo.dtypes import U32
from compiler.hlo.ir import HloInstruction
from compiler.rewrite.emitter import Emitter

Instr = HloInstruction
Words = tuple[Instr, ...]

_PARITY = 0x1BD11BDA
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)


def count_up(e: Emitter, low: Instr, high: Instr, count: int) -> Words:
    """The 64-bit numbers (high, low), + 1, + 2 ..: low and high words of ``[count]``."""
    start = e.broadcast(low, (count,))
    words = e.add(start, e.iota(U32, (count,), 0))
    carry = e.cast(e.compare(words, start, "LT"), U32)
    return words, e.add(e.broadcast(high, (count,)), carry)


def advance(e: Emitter, low: Instr, high: Instr, count: int) -> tuple[Instr, Instr, Instr]:
    """The scalar (high, low) + count, as low and high words, and what is carried out of it."""
    words = e.add(low, e.constant(U32, count & 0xFFFFFFFF))
    carry = e.cast(e.compare(words, low, "LT"), U32)
    upper = e.add(high, e.constant(U32, count >> 32))
    total = e.add(upper, carry)
    spill = e.or_(e.compare(upper, high, "LT"), e.compare(total, upper, "LT"))
    return words, total, e.cast(spill, U32)


def threefry_2x32(e: Emitter, key: Words, counter: Words) -> Words:
    """20 rounds over arrays of counters; `key` is two scalars."""
    dims = counter[0].array.dims
    mixed = e.binary("xor", e.binary("xor", key[0], key[1]), e.constant(U32, _PARITY))
    schedule = [e.broadcast(k, dims) for k in (key[0], key[1], mixed)]
    x, y = e.add(counter[0], schedule[0]), e.add(counter[1], schedule[1])
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x = e.add(x, y)
            y = e.binary("xor", _rotated(e, y, rotation), x)
        x = e.add(x, schedule[(group + 1) % 3])
        y = e.add(e.add(y, schedule[(group + 2) % 3]), e.like(y, group + 1))
    return x, y


def _rotated(e: Emitter, word: Instr, by: int) -> Instr:
    left = e.binary("shift-left", word, e.like(word, by))
    right = e.binary("shift-right-logical", word, e.like(word, 32 - by))
    return e.or_(left, right)


def philox_4x32(e: Emitter, key: Words, counter: Words) -> Words:
    """10 rounds over arrays of 128-bit counters; `key` is two scalars."""
    a, b, c, d = counter
    dims = a.array.dims
    k0, k1 = (e.broadcast(k, dims) for k in key)
    for _ in range(10):
        high0, low0 = _product(e, a, _MULTIPLIERS[0])
        high1, low1 = _product(e, c, _MULTIPLIERS[1])
        a = e.binary("xor", e.binary("xor", high1, b), k0)
        b = low1
        c = e.binary("xor", e.binary("xor", high0, d), k1)
        d = low0
        k0, k1 = e.add(k0, e.like(k0, _WEYL[0])), e.add(k1, e.like(k1, _WEYL[1]))
    return a, b, c, d


def _product(e: Emitter, word: Instr, factor: int) -> tuple[Instr, Instr]:
    """High and low words of a 64-bit product with a constant."""
    other = e.like(word, factor)
    return e.binary("mulhi", word, other), e.multiply(word, other)
