"""How far apart two indices of one array can be, closer than ranges of their terms tell.

    t // 2  and  (t - 1) // 2     are 0 or 1 apart, whatever t
    8 * ((t + 5) // 8)  and  t    are -2 .. 5 apart

The range of a difference counts every term by itself. Here quotients by the same divisor are
taken together where what they divide differs by little, and a multiple of a rounded index is seen
as the index less what rounding takes away.
"""

from __future__ import annotations

from functools import lru_cache

from compiler.analysis.indexing import Expr, Quotient, const, multiple

_MOST_NESTED = 6
"""Divisions within divisions that are looked into, twice each; deeper ones give the range of their
terms (assumed)."""


@lru_cache(maxsize=4096)
def close_bounds(expr: Expr) -> tuple[int, int]:
    """Inclusive bounds of an expression, mostly a difference of two indices."""
    return _bounds(expr, 0)


def _bounds(expr: Expr, depth: int) -> tuple[int, int]:
    if expr.is_constant or depth > _MOST_NESTED:
        return expr.range()
    found = [expr.range(), _paired(expr, depth)]
    unrounded, taken = _unrounded(expr)
    if unrounded is not expr:
        low, high = _paired(unrounded, depth)
        found.append((low + min(0, taken), high + max(0, taken)))
    return max(low for low, _ in found), min(high for _, high in found)


def _paired(expr: Expr, depth: int) -> tuple[int, int]:
    """Bounds with quotients of the same divisor and opposite factors taken two by two."""
    rest = dict(expr.terms)
    low = high = expr.constant
    quotients = [atom for atom in rest if isinstance(atom, Quotient)]
    for number, first in enumerate(quotients):
        for second in quotients[number + 1 :]:
            if first.divisor != second.divisor or rest[first] * rest[second] >= 0:
                continue
            factor = min(abs(rest[first]), abs(rest[second]))
            plus, minus = (first, second) if rest[first] > 0 else (second, first)
            least, most = _bounds(plus.body - minus.body, depth + 1)
            low += factor * (least // plus.divisor)
            high += factor * -(-most // plus.divisor)
            rest[plus] -= factor
            rest[minus] += factor
    for atom, factor in rest.items():
        if factor:
            least, most = multiple(atom, factor).range()
            low, high = low + least, high + most
    return low, high


def _unrounded(expr: Expr) -> tuple[Expr, int]:
    """The expression with ``d * (x // d)`` as x, and the most that this adds (less than 0) or
    takes away: both ends are on one side only when all factors have one sign."""
    result, taken = const(expr.constant), 0
    signs: set[bool] = set()
    is_changed = False
    for atom, factor in expr.terms:
        if isinstance(atom, Quotient) and factor % atom.divisor == 0:
            times = factor // atom.divisor
            result = result + atom.body * times
            taken -= times * (atom.divisor - 1)
            signs.add(times > 0)
            is_changed = True
        else:
            result = result + multiple(atom, factor)
    if not is_changed or len(signs) > 1:
        return expr, 0
    return result, taken
