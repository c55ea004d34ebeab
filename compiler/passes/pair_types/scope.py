"""One computation while it is rewritten: which new values stand for its wide instructions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from compiler.diagnostics import UnsupportedError
from compiler.hlo.dtypes import DType
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.shape import ArrayShape, Shape, TupleShape, leaves
from compiler.passes.pair_types.int64_conversion import saturated_index
from compiler.passes.pair_types.values import (
    Pair,
    TupleValue,
    Value,
    has_wide,
    is_wide,
    lowered,
    part_dtype,
)
from compiler.passes.pair_types.wide import int64_of
from compiler.rewrite.emitter import Emitter
from compiler.rewrite.graph import Attrs, emit

Instr = HloInstruction


class Scope:
    """`values` maps each old instruction with a wide array in it to what stands for it.

    `kinds` says which one operation a reducer was before it was rewritten.
    """

    def __init__(self, kinds: dict[HloComputation, str]) -> None:
        self.values: dict[Instr, Value] = {}
        self.kinds = kinds

    def value(self, instr: Instr) -> Value:
        """What stands for an instruction: itself when nothing about it is wide."""
        return self.values.get(instr, instr)

    def pair(self, instr: Instr) -> Pair:
        """What stands for a wide array."""
        value = self.values[instr]
        assert isinstance(value, Pair), f"%{instr.name} is no array"
        return value

    def parts(self, instr: Instr) -> list[Instr]:
        """The one or two arrays that stand for an array."""
        value = self.value(instr)
        return [value] if isinstance(value, HloInstruction) else list(self.pair(instr).parts)

    def spread(self, operands: Sequence[Instr]) -> list[Instr]:
        """What stands for several operands, two instructions for each wide array."""
        return [part for operand in operands for part in self._spread_one(operand)]

    def _spread_one(self, operand: Instr) -> list[Instr]:
        value = self.value(operand)
        return list(value.parts) if isinstance(value, Pair) else [self.packed(operand)]

    def packed(self, instr: Instr) -> Instr:
        """One instruction that stands for `instr`: a tuple for a wide array."""
        return _packed(instr, self.value(instr))

    def index(self, instr: Instr) -> Instr:
        """An index operand in at most 32 bits."""
        value = self.value(instr)
        return (
            saturated_index(int64_of(Emitter.at(instr), value)).instr
            if isinstance(value, Pair)
            else instr
        )


def _packed(near: Instr, value: Value) -> Instr:
    if isinstance(value, HloInstruction):
        return value
    parts = list(_flat(near, value))
    return emit(near, "tuple", TupleShape(tuple(p.shape for p in parts)), parts)


def _flat(near: Instr, value: Pair | TupleValue) -> Iterator[Instr]:
    if isinstance(value, Pair):
        yield from value.parts
        return
    for element in value.elements:
        if isinstance(element, Pair):
            yield from element.parts
        else:
            yield _packed(near, element)


def unpacked(instr: Instr, shape: Shape) -> Value:
    """The value of an instruction that stands for one of `shape` (a while, a parameter, ..)."""
    if not has_wide(shape):
        return instr
    if isinstance(shape, ArrayShape):
        return Pair(_element(instr, 0), _element(instr, 1), shape.dtype)
    assert isinstance(shape, TupleShape)
    elements: list[Value] = []
    position = 0
    for element in shape.elements:
        if is_wide(element):
            assert isinstance(element, ArrayShape)
            first, second = _element(instr, position), _element(instr, position + 1)
            elements.append(Pair(first, second, element.dtype))
            position += 2
        else:
            elements.append(unpacked(_element(instr, position), element))
            position += 1
    return TupleValue(tuple(elements))


def _element(instr: Instr, index: int) -> Instr:
    assert isinstance(instr.shape, TupleShape)
    shape = instr.shape.elements[index]
    return emit(instr, "get-tuple-element", shape, (instr,), {"index": index})


def assembled(parts: Sequence[Instr], shape: Shape) -> Value:
    """The value of an array or a flat tuple of arrays from the arrays that make it up."""
    if isinstance(shape, ArrayShape):
        return _joined(list(parts), shape)
    assert isinstance(shape, TupleShape)
    left = list(parts)
    elements: list[Value] = []
    for element in shape.elements:
        count = 2 if is_wide(element) else 1
        assert isinstance(element, ArrayShape)
        elements.append(_joined(left[:count], element))
        left = left[count:]
    return TupleValue(tuple(elements))


def _joined(parts: list[Instr], shape: ArrayShape) -> Value:
    return Pair(parts[0], parts[1], shape.dtype) if len(parts) == 2 else parts[0]


def emit_control(scope: Scope, instr: Instr, operands: list[Instr]) -> Value:
    """The same control flow on lowered operands; what it calls has been rewritten already."""
    new = emit(instr, instr.opcode, lowered(instr.shape), operands, kept_attrs(instr), instr.name)
    return unpacked(new, instr.shape)


def kept_attrs(instr: Instr) -> Attrs:
    """The attributes that hold for the rewritten instruction too."""
    dropped = ("control-predecessors", "sharding")
    return {name: value for name, value in instr.attrs.items() if name not in dropped}


def wide_dtype(instr: Instr) -> DType:
    """The first wide type among operands and result."""
    shapes = (*(o.shape for o in instr.operands), instr.shape)
    for shape in (leaf for outer in shapes for leaf in leaves(outer)):
        if part_dtype(shape.dtype) is not None:
            return shape.dtype
    message = f"%{instr.name} has no wide array"
    raise AssertionError(message)


def refuse(instr: Instr, hint: str) -> UnsupportedError:
    """The error for an operation that has no form on pairs."""
    dtype = wide_dtype(instr)
    return UnsupportedError(f"%{instr.name}: {instr.opcode} of {dtype}: {hint}", instr.span)
