"""Builds HLO in the middle of a computation, and loops and inlined computations there.

    e = Emitter.at(instr)
    total = e.loop(n, (x,), lambda b, i, state: [b.add(state[0], b.like(state[0], 1))])

Every instruction inherits the metadata and the place of the one that is expanded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

import numpy as np
import numpy.typing as npt

from compiler.diagnostics import UnsupportedError
from compiler.hlo.builder import HloBuilder
from compiler.hlo.dtypes import C64, F32, S32, DType
from compiler.hlo.identities import identity
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.origins import inherit
from compiler.hlo.shape import ArrayShape, Shape, TupleShape

Dims = tuple[int, ...]
Instr = HloInstruction
Step = Callable[["Emitter", Instr, list[Instr]], Sequence[Instr]]


class Emitter(HloBuilder):
    """An `HloBuilder` in the computation of `near` (or a new one), with array helpers."""

    def __init__(self, near: Instr, computation: HloComputation) -> None:
        assert computation.module is not None
        super().__init__(computation.name, computation.module)
        self.near = near
        self.computation = computation

    @classmethod
    def at(cls, near: Instr) -> Self:
        """Build next to `near`."""
        assert near.computation is not None
        return cls(near, near.computation)

    def instruction(
        self,
        opcode: str,
        operands: Sequence[Instr] = (),
        attrs: dict[str, object] | None = None,
        declared: Shape | None = None,
        name: str | None = None,
    ) -> Instr:
        """Append an instruction that remembers what it is an expansion of."""
        made = super().instruction(opcode, operands, attrs, declared, name)
        made.location = self.near.location
        if opcode != "parameter":
            inherit(made.attrs, self.near)
        return made

    # Values.

    def full(self, dtype: DType, dims: Dims, value: npt.ArrayLike) -> Instr:
        """An array all of whose elements are `value`."""
        scalar = self.constant(dtype, value)
        return scalar if not dims else self.broadcast(scalar, dims)

    def like(self, other: Instr, value: npt.ArrayLike) -> Instr:
        """An array of the type and dimensions of `other` filled with `value`."""
        return self.full(other.array.dtype, other.array.dims, value)

    def table(self, dtype: DType, values: npt.ArrayLike) -> Instr:
        """A constant array."""
        return self.constant(dtype, np.asarray(values))

    def cast(self, operand: Instr, dtype: DType) -> Instr:
        """`operand` in another type, or itself."""
        return operand if operand.array.dtype == dtype else self.convert(operand, dtype)

    def shaped(self, operand: Instr, dims: Dims) -> Instr:
        """`operand` reshaped, or itself."""
        return operand if operand.array.dims == dims else self.reshape(operand, dims)

    def part(self, operand: Instr, dim: int, start: int, limit: int, stride: int = 1) -> Instr:
        """``operand[.., start:limit:stride, ..]`` in one dimension."""
        dim %= operand.array.rank
        ranges = [(0, n, 1) for n in operand.array.dims]
        ranges[dim] = (start, limit, stride)
        if ranges[dim] == (0, operand.array.dims[dim], 1):
            return operand
        return self.instruction("slice", (operand,), {"slice": tuple(ranges)})

    def pad_dim(self, operand: Instr, dim: int, low: int, high: int, value: float = 0) -> Instr:
        """`operand` with `low` and `high` more elements of `value` in one dimension."""
        if low == high == 0:
            return operand
        padding = [(0, 0, 0)] * operand.array.rank
        padding[dim] = (low, high, 0)
        return self.pad(operand, self.constant(operand.array.dtype, value), padding)

    def join(self, parts: Sequence[Instr], dim: int) -> Instr:
        """The parts one after another along a dimension."""
        return parts[0] if len(parts) == 1 else self.concatenate(parts, dim % parts[0].array.rank)

    def total(self, operand: Instr, *dimensions: int, kind: str = "add") -> Instr:
        """Sum (or other `kind` whose identity for this type is known) over some dimensions."""
        dtype = operand.array.dtype
        neutral = identity(kind, dtype)
        assert neutral is not None, f"{kind} has no identity in {dtype}"
        init = self.constant(dtype, neutral)
        dims = tuple(d % operand.array.rank for d in dimensions)
        return self.reduce(operand, init, dims, self.scalar(kind, dtype))

    def swap_last(self, operand: Instr) -> Instr:
        """The last two dimensions exchanged."""
        rank = operand.array.rank
        return self.transpose(operand, (*range(rank - 2), rank - 1, rank - 2))

    def conj(self, operand: Instr) -> Instr:
        """The complex conjugate; a real operand is itself."""
        if not operand.array.dtype.is_complex:
            return operand
        minus = self.negate(self.unary("imag", operand))
        return self.instruction("complex", (self.unary("real", operand), minus))

    def real(self, operand: Instr) -> Instr:
        """The real part; a real operand is itself."""
        return self.unary("real", operand) if operand.array.dtype.is_complex else operand

    def as_type(self, operand: Instr, dtype: DType) -> Instr:
        """A real array as a complex one without imaginary part, or converted."""
        if dtype.is_complex and not operand.array.dtype.is_complex:
            part = real_type(dtype)
            value = self.cast(operand, part)
            return self.instruction("complex", (value, self.like(value, 0)))
        return self.cast(operand, dtype)

    def squared(self, operand: Instr) -> Instr:
        """``|x|^2``, real."""
        if not operand.array.dtype.is_complex:
            return self.multiply(operand, operand)
        re, im = self.unary("real", operand), self.unary("imag", operand)
        return self.add(self.multiply(re, re), self.multiply(im, im))

    def compare_to(self, operand: Instr, value: float, direction: str) -> Instr:
        """Compare with a constant."""
        return self.compare(operand, self.like(operand, value), direction)

    def positions(self, dims: Dims, dim: int) -> Instr:
        """s32 position along a dimension."""
        return self.iota(S32, dims, dim % len(dims))

    # Computations.

    def loop(self, count: int, state: Sequence[Instr], step: Step) -> list[Instr]:
        """Run `step` with i = 0 .. count - 1 as a `while`; return the last state."""
        shapes = (ArrayShape(S32, ()), *(value.shape for value in state))
        shape = TupleShape(shapes)
        body = self.beside("body")
        carried = body.parameter(shape, "state")
        values = [body.get_tuple_element(carried, k) for k in range(len(shapes))]
        results = list(step(body, values[0], values[1:]))
        ahead = body.add(values[0], body.constant(S32, 1))
        made = body.build(body.tuple([ahead, *results]))
        condition = self.beside("condition")
        counter = condition.get_tuple_element(condition.parameter(shape, "state"), 0)
        test = condition.compare(counter, condition.constant(S32, count), "LT")
        init = self.tuple([self.constant(S32, 0), *state])
        loop = self.while_(condition.build(test), made, init)
        return [self.get_tuple_element(loop, k + 1) for k in range(len(state))]

    def choose(self, index: Instr, state: Sequence[Instr], branches: Sequence[Step]) -> list[Instr]:
        """Run one of several steps on the state, by number."""
        shape = TupleShape(tuple(value.shape for value in state))
        made: list[HloComputation] = []
        for number, step in enumerate(branches):
            branch = self.beside(f"branch_{number}")
            carried = branch.parameter(shape, "state")
            values = [branch.get_tuple_element(carried, k) for k in range(len(state))]
            made.append(branch.build(branch.tuple(step(branch, index, values))))
        argument = self.tuple(state)
        result = self.conditional(index, made, [argument] * len(made))
        return [self.get_tuple_element(result, k) for k in range(len(state))]

    def beside(self, role: str) -> Emitter:
        """For a new computation of the module."""
        computation = HloComputation(f"{self.near.opcode}_{role}")
        computation.module = self.module
        return Emitter(self.near, computation)

    def apply(self, computation: HloComputation, arguments: Sequence[Instr]) -> list[Instr]:
        """A scalar computation on arrays of equal dimensions, element by element."""
        dims = arguments[0].array.dims
        made: dict[Instr, list[Instr]] = {}
        for parameter, value in zip(computation.parameters, arguments, strict=True):
            made[parameter] = [value]
        for instr in computation:
            if instr not in made:
                made[instr] = self._apply_one(instr, dims, made)
        return made[computation.root_instruction]

    def _apply_one(self, instr: Instr, dims: Dims, made: dict[Instr, list[Instr]]) -> list[Instr]:
        operands = [value for o in instr.operands for value in made[o]]
        if instr.opcode == "tuple":
            return operands
        if instr.opcode == "get-tuple-element":
            return [operands[instr.index]]
        if instr.opcode in ("call", "map"):
            return self.apply(instr.to_apply, operands)
        if not isinstance(instr.shape, ArrayShape) or instr.shape.dims:
            raise _not_scalar(instr)
        if instr.opcode == "constant":
            return [self.full(instr.array.dtype, dims, instr.literal)]
        if OPCODES[instr.opcode].has(Trait.REARRANGES):
            return operands
        if not OPCODES[instr.opcode].has(Trait.ELEMENTWISE) and instr.opcode != "bitcast-convert":
            raise _not_scalar(instr)
        attrs = {k: v for k, v in instr.attrs.items() if k != "metadata"}
        shape = ArrayShape(instr.array.dtype, dims)
        return [self.instruction(instr.opcode, operands, attrs, shape)]


def _not_scalar(instr: Instr) -> UnsupportedError:
    return UnsupportedError(
        f"%{instr.name}: {instr.opcode} in a computation that is applied to array elements; "
        "use scalar arithmetic there",
        instr.span,
    )


def real_type(dtype: DType) -> DType:
    """The type of a complex type's parts; a real type is itself."""
    return F32 if dtype == C64 else dtype


def result_of(e: Emitter, instr: Instr, values: Sequence[Instr]) -> Instr:
    """The values as what `instr` returns: one array, or a tuple."""
    return e.tuple(values) if isinstance(instr.shape, TupleShape) else values[0]
