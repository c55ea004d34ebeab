"""Values of a computation that is being differentiated: arrays, and tuples of them taken apart.

A tuple is a Python tuple here, so that what nobody reads is never made, and each of its elements has a
derivative of its own or none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from compiler.hlo.builder import HloBuilder
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape, Shape, TupleShape
from compiler.rewrite.emitter import Emitter

Instr = HloInstruction
Value: TypeAlias = "Instr | tuple[Value, ...]"
Tangent: TypeAlias = "Instr | tuple[Tangent, ...] | None"
"""The derivative that belongs to a value, of its type and dimensions; None is zero."""
Mask: TypeAlias = "bool | tuple[Mask, ...]"
"""Which parts of a value the differentiated arguments change."""


@dataclass(frozen=True)
class Onto:
    """A part of a cotangent that is added to the others in place: `function` takes their sum."""

    function: Callable[[Emitter, Instr], Instr]


Contribution: TypeAlias = "Instr | Onto | tuple[Contribution, ...] | None"
Pending: TypeAlias = "list[Instr | Onto] | tuple[Pending, ...] | None"


def array_of(value: Value | Tangent) -> Instr:
    """The value, which is one array; a tuple here is a bug of the caller."""
    assert isinstance(value, Instr), value
    return value


def unpack(b: HloBuilder, instr: Instr) -> Value:
    """The elements of what an instruction returns."""
    if not isinstance(instr.shape, TupleShape):
        return instr
    count = len(instr.shape.elements)
    return tuple(unpack(b, b.get_tuple_element(instr, k)) for k in range(count))


def pack(b: HloBuilder, value: Value) -> Instr:
    """One instruction that returns the value."""
    return value if isinstance(value, Instr) else b.tuple([pack(b, v) for v in value])


def arrays_of(value: Value) -> list[Instr]:
    """All arrays of a value, depth first."""
    return [value] if isinstance(value, Instr) else [a for v in value for a in arrays_of(v)]


def entries(tree: Tangent | Mask, shape: Shape) -> list[Instr | bool | None]:
    """What belongs to each array of a shape, depth first: a tangent or None, or a flag."""
    if not isinstance(shape, TupleShape):
        assert not isinstance(tree, tuple)
        return [tree]
    parts = tree if isinstance(tree, tuple) else (tree,) * len(shape.elements)
    return [e for part, s in zip(parts, shape.elements, strict=True) for e in entries(part, s)]


def tangents_of(tree: Tangent, shape: Shape) -> list[Instr | None]:
    """The tangents of all arrays of a shape."""
    return [e if isinstance(e, Instr) else None for e in entries(tree, shape)]


def flags_of(tree: Mask, shape: Shape) -> list[bool]:
    """The flags of all arrays of a shape."""
    return [bool(e) for e in entries(tree, shape)]


def shaped_like(shape: Shape, items: Iterator[Instr | None]) -> Tangent:
    """The items put into the tuples of a shape."""
    if isinstance(shape, TupleShape):
        return tuple(shaped_like(element, items) for element in shape.elements)
    return next(items)


def value_like(shape: Shape, items: Iterator[Instr]) -> Value:
    """The arrays put into the tuples of a shape."""
    if isinstance(shape, TupleShape):
        return tuple(value_like(element, items) for element in shape.elements)
    return next(items)


def mask_like(shape: Shape, items: Iterator[bool]) -> Mask:
    """The flags put into the tuples of a shape."""
    if isinstance(shape, TupleShape):
        return tuple(mask_like(element, items) for element in shape.elements)
    return next(items)


def is_any(tree: Mask) -> bool:
    """Whether any flag is set."""
    return any(is_any(t) for t in tree) if isinstance(tree, tuple) else tree


def is_zero(tree: Tangent) -> bool:
    """Whether a derivative is zero everywhere."""
    return all(is_zero(t) for t in tree) if isinstance(tree, tuple) else tree is None


def has_derivative(shape: Shape) -> Mask:
    """Which arrays of a shape have elements that can change by little: floats and complex numbers."""
    if isinstance(shape, TupleShape):
        return tuple(has_derivative(element) for element in shape.elements)
    return isinstance(shape, ArrayShape) and (shape.dtype.is_float or shape.dtype.is_complex)


def either(a: Mask, b: Mask) -> Mask:
    """Where one or the other is set."""
    if isinstance(a, tuple) or isinstance(b, tuple):
        return tuple(either(x, y) for x, y in _paired(a, b))
    return a or b


def both(a: Mask, b: Mask) -> Mask:
    """Where both are set."""
    if isinstance(a, tuple) or isinstance(b, tuple):
        return tuple(both(x, y) for x, y in _paired(a, b))
    return a and b


def _paired(a: Mask, b: Mask) -> Iterable[tuple[Mask, Mask]]:
    if not isinstance(a, tuple):
        assert isinstance(b, tuple)
        return [(a, y) for y in b]
    return zip(a, b if isinstance(b, tuple) else (b,) * len(a), strict=True)


def accumulate(pending: Pending, found: Contribution) -> Pending:
    """Note one more contribution to a cotangent."""
    if found is None:
        return pending
    if isinstance(found, tuple):
        old: Sequence[Pending] = pending if isinstance(pending, tuple) else (None,) * len(found)
        return tuple(accumulate(p, f) for p, f in zip(old, found, strict=True))
    assert not isinstance(pending, tuple)
    return [*(pending or ()), found]


def resolve(e: Emitter, pending: Pending, shape: Shape) -> Tangent:
    """The sum of all contributions."""
    if pending is None:
        return None
    if isinstance(pending, tuple):
        assert isinstance(shape, TupleShape)
        return tuple(resolve(e, p, s) for p, s in zip(pending, shape.elements, strict=True))
    assert isinstance(shape, ArrayShape)
    dense = [item for item in pending if isinstance(item, Instr)]
    total = dense[0] if dense else e.full(shape.dtype, shape.dims, 0)
    for part in dense[1:]:
        total = e.add(total, part)
    for item in pending:
        if isinstance(item, Onto):
            total = item.function(e, total)
    assert total.array.is_same_array(shape), f"a cotangent is {total.array}, the value {shape}"
    return total


def tangent_sum(e: Emitter, parts: Sequence[Instr | None]) -> Instr | None:
    """The sum of those that are there."""
    found = [part for part in parts if part is not None]
    if not found:
        return None
    total = found[0]
    for part in found[1:]:
        total = e.add(total, part)
    return total


def or_zeros(e: Emitter, tangent: Instr | None, shape: ArrayShape) -> Instr:
    """The tangent, or as many zeros."""
    return tangent if tangent is not None else e.full(shape.dtype, shape.dims, 0)
