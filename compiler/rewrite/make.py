"""Makers of common instructions next to another one, with their shapes worked out.

Each returns an existing instruction when there is nothing to do (a reshape to the same
dimensions is its operand), so rules need no special cases.
"""

from __future__ import annotations

import math

import numpy as np

from compiler.hlo.dtypes import DType
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.origins import inherit
from compiler.hlo.shape import ArrayShape
from compiler.rewrite.graph import emit

Dims = tuple[int, ...]


def constant(near: HloInstruction, dtype: DType, value: object) -> HloInstruction:
    """A scalar constant."""
    literal = np.asarray(value).astype(dtype.numpy).reshape(())
    return emit(near, "constant", ArrayShape(dtype, ()), (), {"literal": literal})


def splat(near: HloInstruction, shape: ArrayShape, value: object) -> HloInstruction:
    """An array all of whose elements are `value`: a broadcast scalar constant."""
    return broadcast(constant(near, shape.dtype, value), shape.dims, ())


def reshape(operand: HloInstruction, dims: Dims) -> HloInstruction:
    """`operand` with other dimensions."""
    if operand.array.dims == dims:
        return operand
    return emit(operand, "reshape", operand.array.with_dims(dims), (operand,))


def transpose(operand: HloInstruction, permutation: Dims) -> HloInstruction:
    """`operand` with its dimensions permuted: result dim i is operand dim ``permutation[i]``."""
    if permutation == tuple(range(len(permutation))):
        return operand
    dims = tuple(operand.array.dims[p] for p in permutation)
    return emit(
        operand, "transpose", operand.array.with_dims(dims), (operand,), {"dimensions": permutation}
    )


def broadcast(operand: HloInstruction, dims: Dims, mapping: Dims) -> HloInstruction:
    """`operand` repeated to `dims`: its dim i becomes result dim ``mapping[i]``."""
    if operand.array.dims == dims and mapping == tuple(range(len(dims))):
        return operand
    return emit(
        operand, "broadcast", operand.array.with_dims(dims), (operand,), {"dimensions": mapping}
    )


def convert(operand: HloInstruction, dtype: DType) -> HloInstruction:
    """`operand` as another element type."""
    if operand.array.dtype == dtype:
        return operand
    return emit(operand, "convert", ArrayShape(dtype, operand.array.dims), (operand,))


def slice_(operand: HloInstruction, bounds: tuple[tuple[int, int, int], ...]) -> HloInstruction:
    """A strided box of `operand`: (start, limit, stride) for each dimension."""
    if all(b == (0, d, 1) for b, d in zip(bounds, operand.array.dims, strict=True)):
        return operand
    dims = tuple(math.ceil((limit - start) / stride) for start, limit, stride in bounds)
    return emit(operand, "slice", operand.array.with_dims(dims), (operand,), {"slice": bounds})


def elementwise(like: HloInstruction, operands: list[HloInstruction], dims: Dims) -> HloInstruction:
    """The operation of `like` (its opcode, attributes, dtype) on other operands of `dims`."""
    attrs = dict(like.attrs)
    return emit(like, like.opcode, ArrayShape(like.array.dtype, dims), operands, attrs)


def reducer(near: HloInstruction, kind: str, dtype: DType) -> HloComputation:
    """A new computation ``kind(a, b)`` of scalars, in the module of `near`."""
    return _of_two(near, dtype, f"reduce_{kind}", kind)


def replacement(near: HloInstruction, dtype: DType) -> HloComputation:
    """A new computation of scalars a and b that is b, in the module of `near`."""
    return _of_two(near, dtype, "replace", None)


def _of_two(near: HloInstruction, dtype: DType, name: str, kind: str | None) -> HloComputation:
    computation = HloComputation(name)
    scalar = ArrayShape(dtype, ())
    parts = [
        computation.add(HloInstruction("parameter", name, scalar, (), {"parameter_number": i}))
        for i, name in enumerate(("a", "b"))
    ]
    computation.root = parts[1]
    if kind is not None:
        computation.root = computation.add(HloInstruction(kind, kind, scalar, parts))
        inherit(computation.root.attrs, near)
    return near.home.owner.add_computation(computation)
