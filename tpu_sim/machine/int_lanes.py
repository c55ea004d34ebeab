"""Scalar values as Python integers: the meanings of scalar instructions, without arrays.

Words are unsigned, 0 .. 2**32 - 1. It has the primitives of `tpu_sim.isa.semantics.Lanes` that rows of
the scalar unit use, for one element.
"""

from __future__ import annotations

import math
import operator
import struct

_MASK = 0xFFFFFFFF
_COMPARE = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt,
    "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip


def signed(word: int) -> int:
    """A word as a signed number."""
    return word - (1 << 32) if word >> 31 else word


def _rounded(x: float) -> float:
    """The f32 next to a double; what is too large is infinite."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", x))[0])
    except OverflowError:
        return math.copysign(math.inf, x)


def _ordered(x: float) -> tuple[float, float]:
    return x, math.copysign(1.0, x)


def _saturated(a: float, low: int, high: int) -> int:
    if a != a:
        return 0
    return low if a <= low else high if a >= high else int(a)


def _quotient(a: float, b: float) -> float:
    if b == 0:
        sign = math.copysign(1.0, a) * math.copysign(1.0, b)
        return math.nan if a == 0 or a != a else math.copysign(math.inf, sign)
    return _rounded(a / b)


def _signed_division(a: int, b: int) -> tuple[int, int]:
    """Quotient toward zero and remainder of words; x/0 = -1, x%0 = x."""
    if b == 0:
        return _MASK, a
    x, y = signed(a), signed(b)
    quotient, rest = divmod(abs(x), abs(y))
    return (quotient if (x < 0) == (y < 0) else -quotient) & _MASK, (
        -rest if x < 0 else rest
    ) & _MASK


class IntLanes:
    """See the module; names are those of `Lanes`."""

    const_i = staticmethod(lambda value: value & _MASK)
    as_f = staticmethod(lambda x: struct.unpack("<f", struct.pack("<I", x))[0])
    as_i = staticmethod(lambda x: struct.unpack("<I", struct.pack("<f", _rounded(x)))[0])
    s_to_f = staticmethod(lambda a: _rounded(float(signed(a))))
    u_to_f = staticmethod(lambda a: _rounded(float(a)))
    f_to_s = staticmethod(lambda a: _saturated(a, -(1 << 31), (1 << 31) - 1) & _MASK)
    f_to_u = staticmethod(lambda a: _saturated(a, 0, _MASK))

    fadd = staticmethod(lambda a, b: _rounded(a + b))
    fsub = staticmethod(lambda a, b: _rounded(a - b))
    fmul = staticmethod(lambda a, b: _rounded(a * b))
    fdiv = staticmethod(_quotient)
    fmaximum = staticmethod(lambda a, b: math.nan if a != a or b != b else max(a, b, key=_ordered))
    fminimum = staticmethod(lambda a, b: math.nan if a != a or b != b else min(a, b, key=_ordered))
    fcmp = staticmethod(lambda predicate, a, b: _COMPARE[predicate](a, b))

    iadd = staticmethod(lambda a, b: (a + b) & _MASK)
    isub = staticmethod(lambda a, b: (a - b) & _MASK)
    imul = staticmethod(lambda a, b: (a * b) & _MASK)
    idiv_s = staticmethod(lambda a, b: _signed_division(a, b)[0])
    irem_s = staticmethod(lambda a, b: _signed_division(a, b)[1])
    idiv_u = staticmethod(lambda a, b: _MASK if b == 0 else a // b)
    irem_u = staticmethod(lambda a, b: a if b == 0 else a % b)
    iand = staticmethod(operator.and_)
    ior = staticmethod(operator.or_)
    ixor = staticmethod(operator.xor)
    shl = staticmethod(lambda a, b: (a << b) & _MASK if b < 32 else 0)
    lshr = staticmethod(lambda a, b: a >> b if b < 32 else 0)
    ashr = staticmethod(lambda a, b: (signed(a) >> min(b, 31)) & _MASK)
    imin_s = staticmethod(lambda a, b: min(a, b, key=signed))
    imax_s = staticmethod(lambda a, b: max(a, b, key=signed))
    imin_u = staticmethod(min)
    imax_u = staticmethod(max)
    icmp_s = staticmethod(lambda predicate, a, b: _COMPARE[predicate](signed(a), signed(b)))
    icmp_u = fcmp
    select = staticmethod(lambda mask, a, b: a if mask else b)
