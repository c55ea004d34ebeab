"""Scalar values as Python integers: the meanings of scalar instructions, without arrays.

Words are unsigned, 0 .. 2**32 - 1. It has the primitives of `tpu_sim.isa.semantics.Lanes` that rows of
the scalar unit use, for one element.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

_MASK = 0xFFFFFFFF
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def signed(word: int) -> int:
    """A word as a signed number."""
    return word - (1 << 32) if word >> 31 else word


class IntLanes:
    """See the module; names are those of `Lanes`."""

    # Words and floats.

    def const_i(self, value: int) -> int:
        """See `Lanes`."""
        return value & _MASK

    def as_f(self, x: int) -> float:
        """See `Lanes`."""
        return float(struct.unpack("<f", struct.pack("<I", x))[0])

    def as_i(self, x: float) -> int:
        """See `Lanes`."""
        return int(struct.unpack("<I", struct.pack("<f", _rounded(x)))[0])

    def s_to_f(self, a: int) -> float:
        """See `Lanes`."""
        return _rounded(float(signed(a)))

    def u_to_f(self, a: int) -> float:
        """See `Lanes`."""
        return _rounded(float(a))

    def f_to_s(self, a: float) -> int:
        """See `Lanes`."""
        return _saturated(a, -(1 << 31), (1 << 31) - 1) & _MASK

    def f_to_u(self, a: float) -> int:
        """See `Lanes`."""
        return _saturated(a, 0, _MASK)

    # Floats.

    def fadd(self, a: float, b: float) -> float:
        """See `Lanes`."""
        return _rounded(a + b)

    def fsub(self, a: float, b: float) -> float:
        """See `Lanes`."""
        return _rounded(a - b)

    def fmul(self, a: float, b: float) -> float:
        """See `Lanes`."""
        return _rounded(a * b)

    def fdiv(self, a: float, b: float) -> float:
        """See `Lanes`."""
        if b == 0:
            sign = math.copysign(1.0, a) * math.copysign(1.0, b)
            return math.nan if a == 0 or a != a else math.copysign(math.inf, sign)
        return _rounded(a / b)

    def fmaximum(self, a: float, b: float) -> float:
        """See `Lanes`."""
        return math.nan if a != a or b != b else max((a, b), key=_ordered)

    def fminimum(self, a: float, b: float) -> float:
        """See `Lanes`."""
        return math.nan if a != a or b != b else min((a, b), key=_ordered)

    def fcmp(self, predicate: str, a: float, b: float) -> bool:
        """See `Lanes`."""
        return _COMPARE[predicate](a, b)

    # Integers.

    def iadd(self, a: int, b: int) -> int:
        """See `Lanes`."""
        return (a + b) & _MASK

    def isub(self, a: int, b: int) -> int:
        """See `Lanes`."""
        return (a - b) & _MASK

    def imul(self, a: int, b: int) -> int:
        """See `Lanes`."""
        return (a * b) & _MASK

    def idiv_s(self, a: int, b: int) -> int:
        """See `Lanes`."""
        if b == 0:
            return _MASK
        x, y = signed(a), signed(b)
        quotient = abs(x) // abs(y)
        return (quotient if (x < 0) == (y < 0) else -quotient) & _MASK

    def irem_s(self, a: int, b: int) -> int:
        """See `Lanes`."""
        if b == 0:
            return a
        x, y = signed(a), signed(b)
        rest = abs(x) % abs(y)
        return (-rest if x < 0 else rest) & _MASK

    def idiv_u(self, a: int, b: int) -> int:
        """See `Lanes`."""
        return _MASK if b == 0 else a // b

    def irem_u(self, a: int, b: int) -> int:
        """See `Lanes`."""
        return a if b == 0 else a % b

    def iand(self, a: int, b: int) -> int:
        """See `Lanes`."""
        return a & b

    def ior(self, a: int, b: int) -> int:
        """See `Lanes`."""
        return a | b

    def ixor(self, a: int, b: int) -> int:
        """See `Lanes`."""
        return a ^ b

    def shl(self, a: int, b: int) -> int:
        """See `Lanes`."""
        return (a << b) & _MASK if b < 32 else 0

    def lshr(self, a: int, b: int) -> int:
        """See `Lanes`."""
        return a >> b if b < 32 else 0

    def ashr(self, a: int, b: int) -> int:
        """See `Lanes`."""
        return (signed(a) >> min(b, 31)) & _MASK

    def imin_s(self, a: int, b: int) -> int:
        """See `Lanes`."""
        return min(a, b, key=signed)

    def imax_s(self, a: int, b: int) -> int:
        """See `Lanes`."""
        return max(a, b, key=signed)

    def imin_u(self, a: int, b: int) -> int:
        """See `Lanes`."""
        return min(a, b)

    def imax_u(self, a: int, b: int) -> int:
        """See `Lanes`."""
        return max(a, b)

    def icmp_s(self, predicate: str, a: int, b: int) -> bool:
        """See `Lanes`."""
        return _COMPARE[predicate](signed(a), signed(b))

    def icmp_u(self, predicate: str, a: int, b: int) -> bool:
        """See `Lanes`."""
        return _COMPARE[predicate](a, b)

    def select(self, mask: bool, a: int, b: int) -> int:
        """See `Lanes`."""
        return a if mask else b


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
