"""What the rules of batching are made of.

A batched array has its batch as dimension 0; an array that is the same for all examples stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from compiler.autodiff.values import Instr, Mask, Value, array_of, unpack
from compiler.hlo.ir import HloComputation
from compiler.hlo.shape import ArrayShape, Shape, TupleShape
from compiler.rewrite.emitter import Emitter


class Scope(Protocol):
    """Where instructions go, and batching itself, for rules of opcodes that run computations."""

    @property
    def size(self) -> int:
        """How many examples there are."""

    def emit(self, instr: Instr, operands: Sequence[Value]) -> Value:
        """A copy of an instruction with other operands."""

    def emitter(self, near: Instr) -> Emitter:
        """An emitter whose instructions remember that they come of `near`."""

    def at(self, e: Emitter) -> Scope:
        """The scope of an emitter's computation."""

    def within(self, near: Instr, name: str) -> tuple[Scope, Emitter]:
        """A scope in a new computation, and an emitter for it."""

    def run(
        self, computation: HloComputation, args: Sequence[Value], flags: Sequence[Mask]
    ) -> tuple[Value, Mask]:
        """Copy a computation here; its result, and which parts of that are batched."""


Rule = Callable[[Scope, Instr, Sequence[Value], Sequence[Mask]], tuple[Value, Mask]]


@dataclass
class BatchedStep:
    """One operation on arrays, some of them batched."""

    scope: Scope
    e: Emitter
    instr: Instr
    xs: list[Instr]
    flags: list[bool]

    @property
    def size(self) -> int:
        """How many examples there are."""
        return self.scope.size

    def batched(self, number: int) -> Instr:
        """An operand with a batch dimension."""
        x = self.xs[number]
        return x if self.flags[number] else spread(self.e, x, self.size)

    def all_batched(self) -> list[Instr]:
        """All operands with batch dimensions."""
        return [self.batched(i) for i in range(len(self.xs))]

    def again(self, operands: Sequence[Instr], attrs: Mapping[str, object] | None = None) -> Value:
        """The operation with a batched result; `attrs` are those that change."""
        kept = {k: v for k, v in self.instr.attrs.items() if k != "metadata"}
        shape = with_batch(self.instr.shape, self.size)
        made = self.e.instruction(self.instr.opcode, operands, {**kept, **(attrs or {})}, shape)
        return unpack(self.e, made)


def spread(e: Emitter, x: Instr, size: int) -> Instr:
    """The same array for every example."""
    dims = x.array.dims
    return e.broadcast(x, (size, *dims), tuple(range(1, len(dims) + 1)))


def with_batch(shape: Shape, size: int) -> Shape:
    """The shape of a batch."""
    if isinstance(shape, TupleShape):
        return TupleShape(tuple(with_batch(element, size) for element in shape.elements))
    assert isinstance(shape, ArrayShape)
    return ArrayShape(shape.dtype, (size, *shape.dims))


def everywhere(shape: Shape) -> Mask:
    """The flags of a value that is batched in all parts."""
    if isinstance(shape, TupleShape):
        return tuple(everywhere(element) for element in shape.elements)
    return True


def local(function: Callable[[BatchedStep], Value]) -> Rule:
    """A rule for operations on arrays, all of whose results are batched."""

    def rule(
        scope: Scope, instr: Instr, operands: Sequence[Value], flags: Sequence[Mask]
    ) -> tuple[Value, Mask]:
        arrays = [array_of(operand) for operand in operands]
        assert all(isinstance(flag, bool) for flag in flags)
        step = BatchedStep(
            scope, scope.emitter(instr), instr, arrays, [bool(flag) for flag in flags]
        )
        return function(step), everywhere(instr.shape)

    return rule


def shifted(dims: Sequence[int]) -> tuple[int, ...]:
    """Dimension numbers behind a batch dimension."""
    return tuple(d + 1 for d in dims)


def plus_batch(dims: Sequence[int]) -> tuple[int, ...]:
    """The batch dimension, and dimension numbers behind it."""
    return (0, *shifted(dims))


def force(e: Emitter, value: Value, flags: Mask, wanted: Mask, size: int) -> Value:
    """A value whose parts have batch dimensions where `wanted` says."""
    if isinstance(value, tuple):
        parts = [_part(tree, len(value)) for tree in (flags, wanted)]
        every = zip(value, *parts, strict=True)
        return tuple(force(e, v, f, w, size) for v, f, w in every)
    return spread(e, value, size) if wanted and not flags else value


def _part(tree: Mask, count: int) -> Sequence[Mask]:
    return tree if isinstance(tree, tuple) else (tree,) * count
