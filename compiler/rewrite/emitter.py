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
from compiler.hlo.dtypes import S32, DType
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
        super().__init__(computation.name, computation.owner)
        self.near = near
        self.computation = computation

    @classmethod
    def at(cls, near: Instr) -> Self:
        """Build next to `near`."""
        return cls(near, near.home)

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

    def table(self, dtype: DType, values: npt.ArrayLike) -> Instr:
        """A constant array."""
        return self.constant(dtype, np.asarray(values))

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

    def swap_last(self, operand: Instr) -> Instr:
        """The last two dimensions exchanged."""
        rank = operand.array.rank
        return self.transpose(operand, (*range(rank - 2), rank - 1, rank - 2))

    def compare_to(self, operand: Instr, value: float, direction: str) -> Instr:
        """Compare with a constant."""
        return self.compare(operand, self.like(operand, value), direction)

    def positions(self, dims: Dims, dim: int) -> Instr:
        """s32 position along a dimension."""
        return self.iota(S32, dims, dim % len(dims))

    def apart(self, operand: Instr) -> Instr:
        """The value, not to be fused with what reads it."""
        return self.instruction("opt-barrier", (operand,), None, operand.shape)

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

    def apply(
        self,
        computation: HloComputation,
        arguments: Sequence[Instr],
        result: Instr | None = None,
    ) -> list[Instr]:
        """A scalar computation on arrays of equal dimensions, element by element.

        Its results, or those of one instruction, before which nothing else is made.
        """
        root = result or computation.root_instruction
        dims = arguments[0].array.dims
        made: dict[Instr, list[Instr]] = {}
        for parameter, value in zip(computation.parameters, arguments, strict=True):
            made[parameter] = [value]
        needed = cone(root)
        for instr in computation:
            if instr in needed and instr not in made:
                made[instr] = self._apply_one(instr, dims, made)
        return made[root]

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


def cone(root: Instr) -> set[Instr]:
    """An instruction and all that it is computed from."""
    found, pending = {root}, [root]
    while pending:
        new = [o for o in pending.pop().operands if o not in found]
        found.update(new)
        pending += new
    return found


def _not_scalar(instr: Instr) -> UnsupportedError:
    return UnsupportedError(
        f"%{instr.name}: {instr.opcode} in a computation that is applied to array elements; "
        "use scalar arithmetic there",
        instr.span,
    )


def result_of(e: Emitter, instr: Instr, values: Sequence[Instr]) -> Instr:
    """The values as what `instr` returns: one array, or a tuple."""
    return e.tuple(values) if isinstance(instr.shape, TupleShape) else values[0]
