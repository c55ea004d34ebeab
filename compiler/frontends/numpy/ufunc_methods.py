"""``ufunc.reduce``, ``ufunc.accumulate`` and ``ufunc.reduceat``: along axis 0 unless told otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.diagnostics import CompileError, UnsupportedError
from compiler.frontends.numpy.indexing import normal_index
from compiler.frontends.numpy.ops import as_tracer, convert, traced
from compiler.frontends.numpy.reductions import (
    REDUCTION_FUNCTIONS,
    Axis,
    cumulative_rule,
    logic_rule,
    normal_axes,
    normal_axis,
)
from compiler.frontends.numpy.shaping import slice_axis
from compiler.frontends.numpy.tracer import Rule, Trace, Tracer

_LOGIC: dict[np.ufunc, tuple[str, bool]] = {
    np.bitwise_and: ("and", False),
    np.bitwise_or: ("or", False),
    np.bitwise_xor: ("xor", False),
    np.logical_and: ("and", True),
    np.logical_or: ("or", True),
    np.logical_xor: ("xor", True),
}
"""The opcode of a ufunc, and whether it takes truth values."""
_REDUCING: dict[np.ufunc, Rule] = {
    np.add: REDUCTION_FUNCTIONS[np.sum],
    np.maximum: REDUCTION_FUNCTIONS[np.max],
    np.minimum: REDUCTION_FUNCTIONS[np.min],
    np.multiply: REDUCTION_FUNCTIONS[np.prod],
    **{u: logic_rule(opcode, of_truth=of_truth) for u, (opcode, of_truth) in _LOGIC.items()},
}
_PAIRED = (np.fmax, np.fmin, np.gcd, np.hypot, np.lcm, np.logaddexp, np.logaddexp2)
"""Ufuncs that may be applied to elements in any order, and have no reduction of HLO's."""
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


def _pairs(ufunc: np.ufunc) -> Rule:
    """One half of the elements with the other, until one is left."""

    def reduce(trace: Trace, array: Any, axis: Axis = 0, keepdims: bool = False) -> Any:
        x: Any = traced(trace, array)
        axes = normal_axes(axis, x.ndim)
        for place in axes:
            x = np.moveaxis(x, place, 0)
            if not x.shape[0]:
                raise CompileError(f"np.{ufunc.__name__}.reduce of an empty axis has no value")
            while (half := x.shape[0] // 2) > 0:
                x = np.concatenate([ufunc(x[:half], x[half : 2 * half]), x[2 * half :]])
            x = np.moveaxis(x, 0, place)
        return x if keepdims else np.squeeze(x, axes)

    return reduce


def _accumulate_logic(opcode: str, of_truth: bool) -> Rule:
    scan = cumulative_rule(opcode)

    def accumulate(trace: Trace, array: Any, axis: int = 0, dtype: Any = None) -> Any:
        x = as_tracer(trace, array)
        x = convert(x, np.bool_) if of_truth else x
        return scan(trace, x, axis, x.dtype)

    return accumulate


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
        starts = [normal_index(start, x.shape[axis]) for start in np.asarray(indices).tolist()]
        parts: list[Any] = []
        for start, end in zip(starts, [*starts[1:], x.shape[axis]], strict=True):
            part: Any = slice_axis(x, axis, start, max(end, start + 1))
            parts.append(ufunc.reduce(part, axis=axis, dtype=dtype, keepdims=True))
        return np.concatenate(parts, axis=axis)

    return reduceat


UFUNC_METHODS: dict[str, dict[np.ufunc, Rule]] = {
    "reduce": {
        **{u: _reduce(rule) for u, rule in _REDUCING.items()},
        **{u: _pairs(u) for u in _PAIRED},
    },
    "accumulate": {
        **{u: _accumulate(opcode) for u, opcode in _ACCUMULATING.items()},
        **{u: _accumulate_logic(*logic) for u, logic in _LOGIC.items()},
    },
    "reduceat": {ufunc: _reduceat(ufunc) for ufunc in _REDUCING},
}
"""The rules of ufuncs' methods."""
