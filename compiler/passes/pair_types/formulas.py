"""Pairs of arrays in formulas: what wide numbers are made of while their functions are written down.

    z * w + z.like(1.0)      of complex numbers, 64-bit integers or sums of two f32

Each kind is a class with its arithmetic as operators; `select` serves them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from compiler.hlo.dtypes import S32
from compiler.hlo.expression import Expr


@dataclass(frozen=True)
class Parts:
    """Two arrays of equal dimensions that stand for one."""

    first: Expr
    second: Expr

    def __iter__(self) -> Iterator[Expr]:
        return iter((self.first, self.second))


P = TypeVar("P", bound=Parts)


def select(condition: Expr, a: P, b: P) -> P:
    """``condition ? a : b``."""
    first = condition.where(a.first, b.first)
    return replace(a, first=first, second=condition.where(a.second, b.second))


def fma(x: Expr, y: Expr, z: Expr) -> Expr:
    """``x * y + z`` of f32, rounded once."""
    return x.of("multiply-add", y, z)


def sra(x: Expr, amount: Expr | int) -> Expr:
    """The s32 bits of `x` shifted right with the sign."""
    if isinstance(amount, Expr):
        amount = amount.bits(S32)
    return x.bits(S32).of("shift-right-arithmetic", amount).bits(x.dtype)


def is_negative(x: Expr) -> Expr:
    """Whether the top bit of a 32-bit array is set."""
    return x.bits(S32) < 0
