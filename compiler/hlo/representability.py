"""Which types hold all values of another, and when one conversion does the work of two.

`holds` is worked out from what types are (precision, range, special values), not from a list of
pairs; `converts_as_one` adds what HLO's conversions do with values that the target lacks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import ml_dtypes
import numpy as np

from compiler.hlo.dtypes import PRED, DType


@dataclass(frozen=True)
class _Values:
    """The numbers ``m * 2**e`` of a type: m has at most `digits` bits, `quantum` is the least.

    `special` names what else there is: "nan", "inf", "-0".
    """

    digits: int
    quantum: float
    low: float
    high: float
    special: frozenset[str]
    has_zero: bool = True


def holds(target: DType, source: DType) -> bool:
    """Whether every value of `source` is one of `target`, zeros of both signs told apart."""
    if target == source or source == PRED:
        return target == source or _of(target).has_zero
    if target == PRED or (source.is_complex and not target.is_complex):
        return False
    a, b = _of(source), _of(target)
    fits = b.low <= a.low and a.high <= b.high and a.special <= b.special
    fine = a.digits <= b.digits and b.quantum <= a.quantum
    return fits and fine and b.has_zero >= a.has_zero


def has_nan(dtype: DType) -> bool:
    """Whether the type can say that something is not a number."""
    return "nan" in _of(dtype).special


def converts_as_one(first: DType, middle: DType, last: DType) -> bool:
    """Whether converting `first` to `middle` to `last` is converting `first` to `last`.

    Integers wrap, floats saturate on the way to integers, and anything but zero is true: where the
    middle type holds every value, only a change between wrapping and saturating can tell.
    """
    wraps = first.is_integer and last.is_integer
    if wraps and middle.is_integer:  # low bits of low bits
        return holds(middle, first) or last.bits <= middle.bits
    if not holds(middle, first):
        return False
    if first.is_complex or middle.is_complex:
        return first == last or last.is_complex
    return holds(last, first) if wraps else True


@lru_cache(maxsize=64)
def _of(dtype: DType) -> _Values:
    if dtype == PRED:
        return _Values(1, 1, 0, 1, frozenset())
    if dtype.is_integer:
        magnitude = dtype.bits - dtype.is_signed
        low = -(2.0**magnitude) if dtype.is_signed else 0.0
        return _Values(magnitude, 1, low, float((1 << magnitude) - 1), frozenset())
    numpy = dtype.numpy
    if dtype.is_complex:
        numpy = np.dtype(np.float32 if dtype.bits == 64 else np.float64)
    return _float_values(numpy)


def _float_values(numpy: np.dtype[np.generic]) -> _Values:
    info = ml_dtypes.finfo(numpy)
    with np.errstate(all="ignore"):
        zero, minus = np.asarray(0.0).astype(numpy), np.asarray(-0.0).astype(numpy)
        infinity, nan = np.asarray(np.inf).astype(numpy), np.asarray(np.nan).astype(numpy)
        special = {
            "-0": float(minus) == 0 and bool(np.signbit(float(minus))),
            "inf": bool(np.isinf(float(infinity))),
            "nan": bool(np.isnan(float(nan))),
        }
        quantum = float(info.smallest_subnormal)
    names = frozenset(name for name, there in special.items() if there)
    return _Values(
        int(info.nmant) + 1, quantum, float(info.min), float(info.max), names, float(zero) == 0
    )
