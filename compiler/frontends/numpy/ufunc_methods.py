"""``ufunc.reduce``, ``ufunc.accumulate`` and ``ufunc.reduceat``: along axis 0 unless told otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.diagnostics import UnsupportedError
from compiler.frontends.numpy.ops import as_tracer
from compiler.frontends.numpy.reductions import (
    REDUCTION_FUNCTIONS,
    Axis,
    cumulative_rule,
    normal_axis,
)
from compiler.frontends.numpy.shaping import slice_axis
from compiler.frontends.numpy.tracer import Rule, Trace, Tracer

_REDUCING: dict[np.ufunc, object] = {
    np.add: np.sum,
    np.logical_and: np.all,
    np.logical_or: np.any,
    np.maximum: np.max,
    np.minimum: np.min,
    np.multiply: np.prod,
}
"""The function that is a ufunc's reduction."""
_ACCUMULATING: dict[np.ufunc, str] = {
    np.add: "add",
    np.maximum: "maximum",
    np.minimum: "minimum",
    np.multiply: "multiply",
}


def _reduce(rule: Rule) -> Rule:
    def reduce(trace: Trace, a: object, axis: Axis = 0, **kwargs: Any) -> Tracer:
        result: Tracer = rule(trace, a, axis, **kwargs)
        return result

    return reduce


def _accumulate(opcode: str) -> Rule:
    scan = cumulative_rule(opcode)
    return lambda trace, array, axis=0, dtype=None: scan(trace, array, axis, dtype)


def _reduceat(ufunc: np.ufunc) -> Rule:
    """A reduction for each place, up to the next one where that lies behind it."""

    def reduceat(trace: Trace, array: Any, indices: Any, axis: int = 0, dtype: Any = None) -> Any:
        x = as_tracer(trace, array)
        if isinstance(indices, Tracer):
            raise UnsupportedError(
                f"np.{ufunc.__name__}.reduceat: want indices known while tracing"
            )
        axis = normal_axis(axis, x.ndim)
        starts = np.asarray(indices).tolist()
        parts: list[Any] = []
        for start, end in zip(starts, [*starts[1:], x.shape[axis]], strict=True):
            part: Any = slice_axis(x, axis, start, max(end, start + 1))
            parts.append(ufunc.reduce(part, axis=axis, dtype=dtype, keepdims=True))
        return np.concatenate(parts, axis=axis)

    return reduceat


UFUNC_METHODS: dict[str, dict[np.ufunc, Rule]] = {
    "reduce": {u: _reduce(REDUCTION_FUNCTIONS[function]) for u, function in _REDUCING.items()},
    "accumulate": {ufunc: _accumulate(opcode) for ufunc, opcode in _ACCUMULATING.items()},
    "reduceat": {ufunc: _reduceat(ufunc) for ufunc in _REDUCING},
}
"""The rules of ufuncs' methods."""
