"""Integer dots, exact modulo 2^32, on a matrix unit that multiplies floats and perhaps bytes.

    few products    multiply and reduce on the vector unit; so too a matrix with a vector of
                    more than 8 bits, where every element is multiplied once
    bytes           two s8 or two u8 operands are multiplied as such where the chip does
    8-bit values    bf16 holds them; a sum of products is exact in f32 up to 2^24, so the
                    contracted dimension is cut where it could pass that, and where that makes
                    many pieces, each dot takes some of them as a batch
    wider values    as 8-bit digits: every pair of digits is a dot, shifted and added

An operand that was widened from a narrower integer counts as that.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from compiler.analysis.dot_parts import BYTES, is_integer_pass
from compiler.hlo.dtypes import BF16, F32, PRED, S32, DType
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.representability import holds
from compiler.passes.context import PassContext
from compiler.passes.dot_canonicalizer import DotSide, dot_sides
from compiler.passes.expanders.driver import expand
from compiler.rewrite.emitter import Emitter

Instr = HloInstruction
MAX_PRODUCTS = 1 << 18  # on the vector unit
EXACT_SUM = 1 << 24
MAX_DOTS = 16  # of one pair of digits
DIGIT = 8


@dataclass(frozen=True)
class Bf16Digit:
    """Values below ``2^bits`` in magnitude, in bf16, that count ``2^shift``."""

    value: Instr
    bits: int
    shift: int


def expand_integer_dots(module: HloModule, context: PassContext) -> bool:
    """Expand every dot of integers of up to 32 bits."""
    chip = context.chip
    has_bytes = chip.int8_rate > 0
    return expand(module, context, {"dot": partial(expand_integer_dot, has_bytes=has_bytes)})


def expand_integer_dot(instr: Instr, has_bytes: bool = False) -> Instr | None:
    """The dot in s32 arithmetic, converted to the declared type; None if the chip can do it."""
    if not all(_is_small_integer(operand.array.dtype) for operand in instr.operands):
        return None
    if instr.array.dtype.bits > 32 or 0 in instr.array.dims:
        return None
    sides = dot_sides(instr)
    k = sides[0].size(sides[0].contracting)
    is_small = instr.array.element_count * k <= MAX_PRODUCTS
    if has_bytes and not is_small and is_integer_pass(instr):
        return None
    e = Emitter.at(instr)
    if k == 0:
        return e.like(instr, 0)
    left, right = _matrix(e, sides[0], swap=False), _matrix(e, sides[1], swap=True)
    types = (left.array.dtype, right.array.dtype)
    if is_small or _is_of_a_vector(left, right):
        total = _reduced(e, left, right)
    elif has_bytes and types[0] == types[1] and types[0].name in BYTES:
        total = e.dot(left, right, ((2,), (1,)), ((0,), (0,)), S32)
    else:
        total = _by_digits(e, left, right)
    return e.cast(e.shaped(total, instr.array.dims), instr.array.dtype)


def _is_of_a_vector(left: Instr, right: Instr) -> bool:
    """Whether a matrix meets a vector, in more digits than one and one."""
    is_vector = 1 in (left.array.dims[1], right.array.dims[2])
    return is_vector and max(left.array.dtype.bits, right.array.dtype.bits) > DIGIT


def _is_small_integer(dtype: DType) -> bool:
    return (dtype.is_integer or dtype == PRED) and dtype.bits <= 32


def _narrowest(operand: Instr) -> Instr:
    """What the operand was widened from, without a change of value."""
    while operand.opcode == "convert":
        source = operand.operands[0].array.dtype
        if not (source == PRED or source.is_integer) or not holds(operand.array.dtype, source):
            break
        operand = operand.operands[0]
    return operand


def _matrix(e: Emitter, side: DotSide, *, swap: bool) -> Instr:
    """The operand as ``[batch, free, contracting]``, or the last two swapped."""
    last = (side.contracting, side.free) if swap else (side.free, side.contracting)
    order = (*side.batch, *last[0], *last[1])
    sizes = (side.size(side.batch), side.size(last[0]), side.size(last[1]))
    operand = _narrowest(side.operand)
    turned = operand if order == tuple(range(len(order))) else e.transpose(operand, order)
    return e.shaped(turned, sizes)


def _reduced(e: Emitter, left: Instr, right: Instr) -> Instr:
    batch, m, k = left.array.dims
    n = right.array.dims[2]
    full = (batch, m, n, k)
    a = e.broadcast(e.cast(left, S32), full, (0, 1, 3))
    b = e.broadcast(e.transpose(e.cast(right, S32), (0, 2, 1)), full, (0, 2, 3))
    return e.total(e.multiply(a, b), 3)


def _by_digits(e: Emitter, left: Instr, right: Instr) -> Instr:
    sums: list[Instr] = []
    for a in _digits(e, left):
        for b in _digits(e, right):
            shift = a.shift + b.shift
            if shift < 32:
                part = _exact_dot(e, a, b)
                by = e.like(part, shift)
                sums.append(part if shift == 0 else e.binary("shift-left", part, by))
    total = sums[0]
    for part in sums[1:]:
        total = e.add(total, part)
    return total


def _digits(e: Emitter, operand: Instr) -> list[Bf16Digit]:
    """Unsigned digits from below; the top one keeps a signed type's sign."""
    dtype = operand.array.dtype
    if dtype.bits <= DIGIT:
        return [Bf16Digit(e.cast(operand, BF16), dtype.bits - dtype.is_signed, 0)]
    words = e.cast(operand, S32)
    found: list[Bf16Digit] = []
    for shift in range(0, dtype.bits, DIGIT):
        is_top = shift + DIGIT >= dtype.bits
        is_signed = is_top and dtype.is_signed
        kind = "shift-right-arithmetic" if is_signed else "shift-right-logical"
        moved = e.binary(kind, words, e.like(words, shift)) if shift else words
        if not is_signed:
            moved = e.and_(moved, e.like(words, (1 << DIGIT) - 1))
        found.append(Bf16Digit(e.cast(e.cast(moved, F32), BF16), DIGIT - is_signed, shift))
    return found


def _exact_dot(e: Emitter, a: Bf16Digit, b: Bf16Digit) -> Instr:
    """The dot of two digits in s32, the contracted dimension in pieces whose sums are exact."""
    k = a.value.array.dims[2]
    piece = EXACT_SUM >> (a.bits + b.bits)
    together = max(1, -(-k // (piece * MAX_DOTS)))
    total: Instr | None = None
    for start in range(0, k, piece * together):
        limit = min(k, start + piece * together)
        left, right = e.part(a.value, 2, start, limit), e.part(b.value, 1, start, limit)
        part = _summed(e, left, right, piece)
        total = part if total is None else e.add(total, part)
    assert total is not None
    return total


def _summed(e: Emitter, left: Instr, right: Instr, piece: int) -> Instr:
    """The dot of ``[batch, m, k]`` and ``[batch, k, n]``, exact in pieces of k, in s32."""
    batch, m, k = left.array.dims
    if k <= piece:
        return e.cast(e.dot(left, right, ((2,), (1,)), ((0,), (0,)), F32), S32)
    n, count = right.array.dims[2], -(-k // piece)
    missing = count * piece - k
    if missing:
        left, right = e.pad_dim(left, 2, 0, missing), e.pad_dim(right, 1, 0, missing)
    left = e.reshape(left, (batch, m, count, piece))
    right = e.reshape(right, (batch, count, piece, n))
    sums = e.dot(left, right, ((3,), (2,)), ((0, 2), (0, 1)), F32)
    return e.total(e.cast(sums, S32), 1)
