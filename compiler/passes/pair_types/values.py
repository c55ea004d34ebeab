"""Values of the rewritten program: what stands for an instruction of a wide type.

    s64[8,128]                (u32[8,128] low, u32[8,128] high)
    c64[8,128]                (f32[8,128] real, f32[8,128] imaginary)
    (s64[], f32[4], c64[2])   (u32[], u32[], f32[4], f32[2], f32[2])

A tuple holds the two parts of an element in its place, one after the other; nested tuples stay.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.hlo.device_types import PARTS
from compiler.hlo.dtypes import DType
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape, Shape, TupleShape
from compiler.passes.signature import Replacement


@dataclass(frozen=True)
class Pair:
    """Two arrays that stand for one of `dtype`: (low, high) words or (real, imaginary) parts."""

    first: HloInstruction
    second: HloInstruction
    dtype: DType

    @property
    def dims(self) -> tuple[int, ...]:
        """Logical dimensions."""
        return self.first.array.dims

    @property
    def parts(self) -> tuple[HloInstruction, HloInstruction]:
        """Both arrays."""
        return self.first, self.second

    def retyped(self, dtype: DType) -> Pair:
        """The same words as another type."""
        return Pair(self.first, self.second, dtype)


@dataclass(frozen=True)
class TupleValue:
    """A tuple with a wide array in it."""

    elements: tuple[Value, ...]


Value = HloInstruction | Pair | TupleValue


def part_dtype(dtype: DType) -> DType | None:
    """The type of each part of a wide type; None for one that a lane can hold."""
    return PARTS.get(dtype.name)


def is_wide(shape: Shape) -> bool:
    """Whether this is an array of a wide type."""
    return isinstance(shape, ArrayShape) and shape.dtype.name in PARTS


def has_wide(shape: Shape) -> bool:
    """Whether there is a wide array anywhere in the shape."""
    if isinstance(shape, TupleShape):
        return any(has_wide(element) for element in shape.elements)
    return is_wide(shape)


def part_shape(shape: ArrayShape) -> ArrayShape:
    """The shape of each part of a wide array."""
    return ArrayShape(PARTS[shape.dtype.name], shape.dims, None, shape.dynamic)


def _parts(shape: Shape) -> tuple[Shape, ...]:
    if is_wide(shape):
        assert isinstance(shape, ArrayShape)
        return (part_shape(shape),) * 2
    return (shape,)


PAIRS = Replacement(_parts)
"""Signatures in which the parts of wide arrays stand for them."""


def lowered(shape: Shape) -> Shape:
    """The one shape that stands for a shape: a tuple of two for a wide array."""
    return PAIRS.lowered(shape)
