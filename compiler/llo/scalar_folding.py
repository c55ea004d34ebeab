"""Scalar integer arithmetic of the ISA on Python ints, for constant folding.

Values are signed 32-bit; every function wraps like the instruction it is named after.
"""

from __future__ import annotations

from collections.abc import Callable

_MASK = 0xFFFFFFFF


def wrap(value: int) -> int:
    """`value` as a signed 32-bit integer.

    >>> wrap(1 << 31)
    -2147483648
    """
    return ((value + 0x80000000) & _MASK) - 0x80000000


def _divide_signed(a: int, b: int) -> int:
    if b == 0:
        return -1
    quotient = abs(a) // abs(b)
    return wrap(quotient if (a < 0) == (b < 0) else -quotient)


def _remainder_signed(a: int, b: int) -> int:
    return a if b == 0 else wrap(a - b * _divide_signed(a, b)) if b != -1 else 0


def _divide_unsigned(a: int, b: int) -> int:
    return wrap((a & _MASK) // (b & _MASK)) if b else -1


def _remainder_unsigned(a: int, b: int) -> int:
    return wrap((a & _MASK) % (b & _MASK)) if b else a


def _shift(a: int, b: int, operation: Callable[[int, int], int], beyond: int) -> int:
    return wrap(operation(a, b)) if 0 <= b <= 31 else beyond


INTEGER_OPS: dict[str, Callable[[int, int], int]] = {
    "sadd.s32": lambda a, b: wrap(a + b),
    "ssub.s32": lambda a, b: wrap(a - b),
    "smul.s32": lambda a, b: wrap(a * b),
    "sdiv.s32": _divide_signed,
    "srem.s32": _remainder_signed,
    "sdiv.u32": _divide_unsigned,
    "srem.u32": _remainder_unsigned,
    "sand": lambda a, b: a & b,
    "sor": lambda a, b: a | b,
    "sxor": lambda a, b: a ^ b,
    "sshl": lambda a, b: _shift(a, b, lambda x, n: x << n, 0),
    "sshr": lambda a, b: _shift(a, b, lambda x, n: (x & _MASK) >> n, 0),
    "ssra": lambda a, b: _shift(a, b, lambda x, n: x >> n, -1 if a < 0 else 0),
    "smin.s32": min,
    "smax.s32": max,
    "smin.u32": lambda a, b: min(a, b, key=lambda x: x & _MASK),
    "smax.u32": lambda a, b: max(a, b, key=lambda x: x & _MASK),
}
"""Two-operand integer rows by name."""

IMMEDIATE_FORMS: dict[str, str] = {
    "sadd.s32": "saddi.s32",
    "smul.s32": "smuli.s32",
    "sand": "sandi",
    "sxor": "sxori",
    "sshl": "sshli",
    "sshr": "sshri",
    "ssra": "ssrai",
    "sdiv.u32": "sdivi.u32",
    "srem.u32": "sremi.u32",
}
"""The row with an immediate second operand, where there is one."""

COMMUTATIVE = frozenset({"sadd.s32", "smul.s32", "sand", "sor", "sxor", "smin.s32", "smax.s32"})

COMPARES: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
"""Signed compare predicates."""
