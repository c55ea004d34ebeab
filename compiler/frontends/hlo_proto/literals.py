"""LiteralProto -> a NumPy array, or the text of one: ``{ {1, 2}, {3, 4} }``."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from compiler.frontends.hlo_proto.shapes import dtype_of, minor_to_major, shape_text
from compiler.hlo.literal_text import Literal, print_literal
from compiler.hlo.shape import ArrayShape, Shape, TupleShape
from compiler.hlo.shape_text import parse_shape
from compiler.protobuf import Message, packed_integers

_SHAPE, _TUPLE_LITERALS = 1, 10
_NEGATIVE_ZERO = re.compile(r"-0(?![\w.])")  # XLA reads `-0` as an integer, without its sign
_INTEGERS = {"pred": 2, "s32": 4, "s64": 5, "u32": 6, "u64": 7}
_BYTES = {
    "f32": 8, "f64": 9, "c64": 12, "c128": 18, "u8": 3, "f16": 11, "bf16": 13, "s8": 15, "u16": 16, "s16": 17,
    "f8e5m2": 19, "f8e4m3fn": 20, "s4": 21, "u4": 22, "f8e4m3b11fnuz": 23, "f8e5m2fnuz": 24,
    "f8e4m3fnuz": 25, "s2": 26, "u2": 27, "f8e4m3": 28, "f8e3m4": 29, "s1": 30, "u1": 31,
    "f4e2m1fn": 32, "f8e8m0fnu": 33,
}  # fmt: skip
"""Which field holds the elements: as packed integers, or as bytes in little-endian order."""


def literal_text(literal: Message) -> str:
    """The text of a literal, as it stands between the parentheses of a constant."""
    shape = parse_shape(shape_text(literal.message(_SHAPE)))
    text = print_literal(_value(literal, shape), shape)
    return _NEGATIVE_ZERO.sub("-0.0", text)


def literal_arrays(literal: Message) -> list[npt.NDArray[np.generic]]:
    """The arrays of a literal, those of a tuple in order."""
    if dtype_of(literal.message(_SHAPE)):
        shape = parse_shape(shape_text(literal.message(_SHAPE)))
        assert isinstance(shape, ArrayShape)
        return [_array(literal, shape)]
    return [a for part in literal.messages(_TUPLE_LITERALS) for a in literal_arrays(part)]


def _value(literal: Message, shape: Shape) -> Literal:
    if isinstance(shape, TupleShape):
        parts = zip(literal.messages(_TUPLE_LITERALS), shape.elements, strict=True)
        return tuple(_value(part, element) for part, element in parts)
    if not isinstance(shape, ArrayShape):
        message = f"a literal of {shape} has no elements"
        raise ValueError(message)
    return _array(literal, shape)


def _array(literal: Message, shape: ArrayShape) -> npt.NDArray[np.generic]:
    """The elements lie in the order of the literal's own layout."""
    flat = _elements(literal, dtype_of(literal.message(_SHAPE)), shape)
    if flat.size != shape.element_count:
        message = f"a literal of {shape} has {flat.size} elements"
        raise ValueError(message)
    order = tuple(reversed(minor_to_major(literal.message(_SHAPE)))) or tuple(range(shape.rank))
    physical = flat.reshape([shape.dims[dim] for dim in order])
    return np.ascontiguousarray(physical.transpose(np.argsort(order))).reshape(shape.dims)


def _elements(literal: Message, name: str, shape: ArrayShape) -> npt.NDArray[np.generic]:
    if name in _INTEGERS:
        return packed_integers(literal.raw(_INTEGERS[name])).astype(shape.dtype.numpy)
    data = np.frombuffer(literal.raw(_BYTES[name]), np.uint8)
    if shape.dtype.bits < 8 and shape.dtype.is_integer and shape.dtype.is_signed:
        unused = 8 - shape.dtype.bits  # a byte an element, whose upper bits say nothing
        return ((data << unused).view(np.int8) >> unused).view(shape.dtype.numpy)
    return data.view(shape.dtype.numpy)
