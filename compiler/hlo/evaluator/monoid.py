"""Reducers of one associative, commutative operation: how it combines, its identity and sums.

Sums of narrow floats accumulate in f32, sums of f32 over a non-contiguous axis in f64 (NumPy's
pairwise summation only works along the innermost axis).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from compiler.hlo.attributes import Window
from compiler.hlo.dtypes import from_numpy
from compiler.hlo.evaluator.extremes import (
    maximum,
    maximum_at,
    minimum,
    minimum_at,
    reduce_maximum,
    reduce_minimum,
)
from compiler.hlo.evaluator.numerics import widen
from compiler.hlo.identities import identity
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.representability import holds

Array: TypeAlias = npt.NDArray[Any]

Axes: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class _Operation:
    """One operation on two arrays, along axes in an accumulator's type, and in place at targets."""

    combine: Callable[[Array, Array], Array]
    reduce: Callable[[Array, Axes, np.dtype[np.generic]], Array]
    combine_at: Callable[[Array, Array, Array], None]


def _of_ufunc(ufunc: np.ufunc) -> _Operation:
    return _Operation(
        ufunc,
        lambda array, axes, dtype: np.asarray(ufunc.reduce(array, axis=axes, dtype=dtype)),
        ufunc.at,
    )


_OPERATIONS: dict[str, _Operation] = {
    "add": _of_ufunc(np.add),
    "and": _of_ufunc(np.bitwise_and),
    "maximum": _Operation(maximum, lambda x, axes, _: reduce_maximum(x, axes), maximum_at),
    "minimum": _Operation(minimum, lambda x, axes, _: reduce_minimum(x, axes), minimum_at),
    "multiply": _of_ufunc(np.multiply),
    "or": _of_ufunc(np.bitwise_or),
    "xor": _of_ufunc(np.bitwise_xor),
}


def running_total(kind: str, array: Array, axis: int, *, is_reverse: bool) -> Array:
    """Each element combined with all before it along an axis, or behind it. Sums start at +0.0."""
    moved = np.moveaxis(array, axis, 0)
    moved = moved[::-1] if is_reverse else moved
    combine, total = _OPERATIONS[kind].combine, np.empty_like(moved)
    for place, values in enumerate(moved):
        total[place] = combine(total[place - 1], values) if place else values
    if kind == "add":
        total = np.add(total, array.dtype.type(0))
    return np.moveaxis(total[::-1] if is_reverse else total, 0, axis)


def monoid_of(body: HloComputation) -> Monoid | None:
    """Recognise ``op(param 0, param 1)`` in either order, also computed wider than its type."""
    root = body.root_instruction
    if root.opcode == "convert" and _is_widening(root.operands[0], root):
        root = root.operands[0]
    if root.opcode not in _OPERATIONS or len(body.parameters) != 2:
        return None
    sources = [
        operand.operands[0]
        if operand.opcode == "convert" and _is_widening(operand, operand.operands[0])
        else operand
        for operand in root.operands
    ]
    same = {id(source) for source in sources} == {id(p) for p in body.parameters}
    return Monoid(root.opcode) if same else None


def _is_widening(wide: HloInstruction, narrow: HloInstruction) -> bool:
    a, b = wide.array.dtype, narrow.array.dtype
    return a.is_float and b.is_float and holds(a, b)


@dataclass(frozen=True)
class Monoid:
    """An associative, commutative operation of two scalars."""

    opcode: str

    def combine(self, x: Array, y: Array) -> Array:
        """Element by element."""
        return _OPERATIONS[self.opcode].combine(x, y)

    def combine_at(self, flat: Array, targets: Array, updates: Array) -> None:
        """Take each update into the element at its target, in place."""
        _OPERATIONS[self.opcode].combine_at(flat, targets, updates)

    def reduce(self, array: Array, axes: tuple[int, ...]) -> Array:
        """Reduce over axes; the result is wide (f32 for bf16) and lacks the initial value."""
        wide = widen(array)
        if not axes:
            return wide
        if any(wide.shape[axis] == 0 for axis in axes):
            kept = [n for axis, n in enumerate(wide.shape) if axis not in axes]
            return np.full(kept, self.identity(wide.dtype), wide.dtype)
        if wide.dtype == np.bool_ and self.opcode == "add":
            return np.asarray(np.bitwise_or.reduce(wide, axis=axes))
        dtype = wide.dtype
        if dtype != np.float32 or array.ndim - 1 not in axes:
            dtype = self._accumulator(dtype)
        return _OPERATIONS[self.opcode].reduce(wide, axes, dtype)

    def _accumulator(self, dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
        if self.opcode not in ("add", "multiply"):
            return dtype
        doubled: dict[np.dtype[np.generic], np.dtype[np.generic]] = {
            np.dtype(np.float32): np.dtype(np.float64),
            np.dtype(np.complex64): np.dtype(np.complex128),
        }
        return doubled.get(dtype, dtype)

    def identity(self, dtype: np.dtype[np.generic]) -> Array:
        """The neutral element of the operation in a type."""
        value = identity(self.opcode, from_numpy(dtype))
        assert value is not None, f"{self.opcode} has no identity in {dtype}"
        return np.asarray(value, dtype)

    def slide(self, padded: Array, window: Window, extents: Sequence[int]) -> Array:
        """Reduce every window of an already padded array, one dimension after the other."""
        result = padded.astype(self._accumulator(padded.dtype), copy=False)
        if any(extent == 0 for extent in extents):
            return np.zeros(tuple(extents), padded.dtype)
        for axis, (dim, extent) in enumerate(zip(window.dims, extents, strict=True)):
            if dim.size == 0:
                shape = (*result.shape[:axis], extent, *result.shape[axis + 1 :])
                return np.full(shape, self.identity(result.dtype), result.dtype)
            if (dim.size, dim.stride) != (1, 1) or result.shape[axis] != extent:
                result = self._slide_axis(result, axis, dim.size, dim.window_dilation)
                index = slice(0, (extent - 1) * dim.stride + 1, dim.stride)
                result = result[(slice(None),) * axis + (index,)]
        return result

    def _slide_axis(self, array: Array, axis: int, size: int, dilation: int) -> Array:
        """All windows of `size` along an axis, by doubling: w(2k)[i] = w(k)[i] op w(k)[i + k]."""
        moved = np.moveaxis(array, axis, 0)
        count = moved.shape[0] - (size - 1) * dilation
        result: Array | None = None
        done = 0
        power, doubled = 1, moved
        while True:
            if size & power:
                part = doubled[done * dilation : done * dilation + count]
                result = part if result is None else self.combine(result, part)
                done += power
            if done == size:
                break
            step = power * dilation
            doubled = self.combine(doubled[:-step], doubled[step:])
            power *= 2
        assert result is not None
        return np.moveaxis(result, 0, axis)
