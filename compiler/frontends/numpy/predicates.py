"""Questions about arrays and their elements, and functions of single elements.

Each rule is NumPy code on traced arrays; NumPy's types do not know these: hence `Any`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler.frontends.numpy.ops import traced
from compiler.frontends.numpy.tracer import Rule, Trace


def _allclose(
    trace: Trace, a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    close: Any = np.isclose(traced(trace, a), b, rtol, atol)
    if not equal_nan:
        return np.all(close)
    return np.all(close | (np.isnan(traced(trace, a)) & np.isnan(traced(trace, b))))


def _array_equal(trace: Trace, a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    x, y = traced(trace, a1), traced(trace, a2)
    if x.shape != y.shape:
        return traced(trace, np.bool_(False))
    same: Any = x == y
    return np.all(same | (np.isnan(x) & np.isnan(y)) if equal_nan else same)


def isin(
    trace: Trace,
    element: Any,
    test_elements: Any,
    assume_unique: bool = False,
    invert: bool = False,
) -> Any:
    """np.isin: whether each element is among others, by comparing all with all."""
    found = np.any(traced(trace, element)[..., None] == np.ravel(traced(trace, test_elements)), -1)
    return np.logical_not(found) if invert else found


def _isneginf(trace: Trace, x: Any) -> Any:
    return traced(trace, x) == -np.inf


def _isposinf(trace: Trace, x: Any) -> Any:
    return traced(trace, x) == np.inf


def _iscomplex(trace: Trace, x: Any) -> Any:
    return np.imag(traced(trace, x)) != 0


def _isreal(trace: Trace, x: Any) -> Any:
    return np.imag(traced(trace, x)) == 0


def _iscomplexobj(trace: Trace, x: Any) -> bool:
    return bool(traced(trace, x).dtype.kind == "c")


def _isrealobj(trace: Trace, x: Any) -> bool:
    return not _iscomplexobj(trace, x)


def _angle(trace: Trace, z: Any, deg: bool = False) -> Any:
    x = traced(trace, z)
    found = np.arctan2(np.imag(x), np.real(x))
    return np.degrees(found) if deg else found


def _fix(trace: Trace, x: Any) -> Any:
    return np.trunc(traced(trace, x))


def _sinc(trace: Trace, x: Any) -> Any:
    y: Any = np.pi * traced(trace, x)
    safe: Any = np.where(y == 0, 1, y)
    return np.where(y == 0, 1, np.sin(safe) / safe)


def polyval(trace: Trace, p: Any, x: Any) -> Any:
    """np.polyval: the highest coefficient first."""
    coefficients, at = traced(trace, p), traced(trace, x)
    result: Any = np.zeros_like(at)
    for i in range(len(coefficients)):
        result = result * at + coefficients[i]
    return result


def _select(
    trace: Trace, condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0
) -> Any:
    result: Any = default
    for condition, choice in reversed(list(zip(condlist, choicelist, strict=True))):
        result = np.where(traced(trace, condition), choice, result)
    return result


PREDICATES_FUNCTIONS: dict[object, Rule] = {
    np.allclose: _allclose,
    np.angle: _angle,
    np.array_equal: _array_equal,
    np.fix: _fix,
    np.iscomplex: _iscomplex,
    np.iscomplexobj: _iscomplexobj,
    np.isin: isin,
    np.isneginf: _isneginf,
    np.isposinf: _isposinf,
    np.isreal: _isreal,
    np.isrealobj: _isrealobj,
    np.polyval: polyval,
    np.select: _select,
    np.sinc: _sinc,
}
