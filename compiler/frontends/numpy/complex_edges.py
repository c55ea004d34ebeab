"""Complex functions where a part is infinite, NaN or a zero: the values of C's Annex G, as NumPy has them.

The opcodes' formulas multiply parts, so that an infinity beside a NaN makes both parts NaN; here the part
that is known is put in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from compiler.frontends.numpy.ops import as_tracer, complex_of, is_complex, parts
from compiler.frontends.numpy.tracer import Rule, Trace, Tracer

Parts = tuple[Any, Any]
"""Real and imaginary part."""
Edge = Callable[[Any, Any, Any, Any], Parts]
"""The parts of a value, of the argument's parts and the formula's."""


def _exp(a: Any, b: Any, re: Any, im: Any, least: float = 0.0) -> Parts:
    is_open = np.isinf(a) & ~np.isfinite(b)
    low, high = is_open & (a < 0), is_open & (a > 0)
    return np.where(low, least, np.where(high, np.inf, re)), np.where(
        low, 0, np.where(high, np.nan, im)
    )


def _expm1(a: Any, b: Any, re: Any, im: Any) -> Parts:
    return _exp(a, b, re, im, -1.0)


def _sinh(a: Any, b: Any, re: Any, im: Any) -> Parts:
    is_open = np.isinf(a) & ~np.isfinite(b)
    return np.where(is_open, a, re), np.where(is_open, np.nan, im)


def _cosh(a: Any, b: Any, re: Any, im: Any) -> Parts:
    return _sinh(np.abs(a), b, re, im)


def _tanh(a: Any, b: Any, re: Any, im: Any) -> Parts:
    is_open = (a == 0) & ~np.isfinite(b)
    return np.where(is_open, a, re), np.where(is_open, np.nan, im)


def _acos(a: Any, b: Any, re: Any, im: Any) -> Parts:
    is_open = (a == 0) & np.isnan(b)
    return np.where(is_open, np.pi / 2, re), np.where(is_open, np.nan, im)


def _acosh(a: Any, b: Any, re: Any, im: Any) -> Parts:
    is_open = (a == 0) & np.isnan(b)
    return np.where(is_open, np.nan, re), np.where(is_open, np.pi / 2, im)


def _asinh(a: Any, b: Any, re: Any, im: Any) -> Parts:
    im = np.where(np.isnan(a) & (b == 0), b, im)
    return re, np.where(b == 0, b, im)


def _atanh(a: Any, b: Any, re: Any, im: Any) -> Parts:
    is_open = np.isnan(b) & ((a == 0) | np.isinf(a))
    return np.where(is_open, np.copysign(0, a), re), np.where(is_open, np.nan, im)


def _log1p(a: Any, b: Any, re: Any, im: Any) -> Parts:
    is_open = np.isinf(a) | np.isinf(b)
    im = np.where(is_open, np.arctan2(b, a), np.copysign(im, b))
    return np.where(is_open, np.inf, re), im


_EDGES: dict[np.ufunc, Edge] = {
    np.arccos: _acos,
    np.arccosh: _acosh,
    np.arcsinh: _asinh,
    np.arctanh: _atanh,
    np.cosh: _cosh,
    np.exp: _exp,
    np.expm1: _expm1,
    np.log1p: _log1p,
    np.sinh: _sinh,
    np.tanh: _tanh,
}


def with_complex_edges(rules: Mapping[np.ufunc, Rule]) -> dict[np.ufunc, Rule]:
    """The rules, those of complex functions with their values at the edges."""
    return {**rules, **{ufunc: _edged(rules[ufunc], edge) for ufunc, edge in _EDGES.items()}}


def _edged(rule: Rule, edge: Edge) -> Rule:
    def edged(trace: Trace, value: object) -> Tracer:
        x = as_tracer(trace, value)
        made: Tracer = rule(trace, x)
        if not is_complex(x):
            return made
        a, b = parts(x)
        re, im = edge(a, b, *parts(made))
        return complex_of(re, im)

    return edged
