"""Builds random HLO from the root down: an instruction of a wanted type and dimensions, its operands
likewise, as a pattern asks or at random.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from benchmarks.rule_fuzz.values import (
    ALL,
    MAX_ELEMENTS,
    Array,
    Dims,
    Random,
    edge_values,
    pick_dims,
    pick_dtype,
    random_array,
)
from compiler.diagnostics import CompileError
from compiler.hlo.attributes import ComputationLayout
from compiler.hlo.dtypes import DType, integer_limits
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.shape import ArrayShape, Shape
from compiler.hlo.shape_inference import infer_shape
from compiler.rewrite.graph import remove_dead
from compiler.rewrite.pattern import Pattern, Splat, Var, equals_exactly


class Impossible(Exception):
    """No such instruction: the draw is thrown away and another one made."""


@dataclass(frozen=True)
class Wanted:
    """The array an instruction should give."""

    dtype: DType
    dims: Dims

    def like(self, dims: Dims) -> Wanted:
        """The same type with other dimensions."""
        return Wanted(self.dtype, dims)


@dataclass(frozen=True)
class Plan:
    """How an opcode can give what is wanted: attributes, and operands that are still to be made, or
    are there already where their values matter (indices, initial values)."""

    operands: tuple[Wanted | HloInstruction, ...]
    attrs: dict[str, object] = field(default_factory=dict)


T = TypeVar("T")
Planner = Callable[["Generator", Wanted], Plan]


class Generator:
    """One module in the making; every choice comes from `rng`."""

    def __init__(self, rng: Random, planners: dict[str, Planner], edges: float = 0.5) -> None:
        self.rng = rng
        self.planners = planners
        self.edges = edges
        self.module = HloModule("match")
        self.computation = HloComputation("main")
        self.computation.module = self.module
        self.inputs: list[Array] = []

    # Choices.

    def chance(self, share: float) -> bool:
        """True in so many of the cases."""
        return bool(self.rng.random() < share)

    def integer(self, low: int, high: int) -> int:
        """A number of low..high."""
        return int(self.rng.integers(low, high + 1))

    def choose(self, options: Sequence[T]) -> T:
        """One of the options."""
        if len(options) == 0:
            raise Impossible
        return options[int(self.rng.integers(len(options)))]

    def dtype(self, names: tuple[str, ...] = ALL) -> DType:
        """A type of these names."""
        return pick_dtype(self.rng, names)

    def dims(self, least: int = 0, most: int = 4, limit: int = MAX_ELEMENTS) -> Dims:
        """Dimensions of at most so many elements."""
        return pick_dims(self.rng, least, most, limit)

    def permutation(self, rank: int) -> Dims:
        """Any order of dimensions."""
        return tuple(int(d) for d in self.rng.permutation(rank))

    # Instructions.

    def emit(
        self,
        opcode: str,
        operands: Sequence[HloInstruction] = (),
        attrs: dict[str, object] | None = None,
        wanted: Wanted | None = None,
    ) -> HloInstruction:
        """An instruction whose shape is inferred."""
        declared = None if wanted is None else ArrayShape(wanted.dtype, wanted.dims)
        shape: Shape
        try:
            shape = infer_shape(opcode, operands, attrs or {}, declared)
        except CompileError as error:
            raise Impossible(str(error)) from error
        instr = HloInstruction(opcode, opcode, shape, operands, dict(attrs or {}))
        return self.computation.add(instr)

    def parameter(self, wanted: Wanted, values: Array | None = None) -> HloInstruction:
        """An input, of edge values unless `values` are given."""
        if values is None:
            values = random_array(self.rng, wanted.dtype, wanted.dims, self.edges)
        attrs: dict[str, object] = {"parameter_number": len(self.inputs)}
        self.inputs.append(values)
        return self.emit("parameter", (), attrs, wanted)

    def literal(self, dtype: DType, values: Array) -> HloInstruction:
        """A constant."""
        array = np.asarray(values).astype(dtype.numpy)
        return self.emit("constant", (), {"literal": array}, Wanted(dtype, array.shape))

    def splat(self, wanted: Wanted, value: object = None) -> HloInstruction:
        """A constant all of whose elements are equal: a scalar, broadcast, or an array."""
        dtype = wanted.dtype
        scalar = self.choose(edge_values(dtype)) if value is None else _exact(dtype, value)
        if not wanted.dims:
            return self.literal(dtype, np.asarray(scalar))
        if self.chance(0.2):
            return self.literal(dtype, np.full(wanted.dims, scalar, dtype.numpy))
        return self.emit(
            "broadcast", (self.literal(dtype, np.asarray(scalar)),), {"dimensions": ()}, wanted
        )

    def leaf(self, wanted: Wanted) -> HloInstruction:
        """A value that is computed from nothing: mostly an input."""
        draw = self.rng.random()
        if draw < 0.15:
            return self.splat(wanted)
        if draw < 0.25:
            return self.literal(
                wanted.dtype, random_array(self.rng, wanted.dtype, wanted.dims, self.edges)
            )
        if draw < 0.35 and wanted.dims and wanted.dtype.kind != "pred":
            dim = self.integer(0, len(wanted.dims) - 1)
            return self.emit("iota", (), {"iota_dimension": dim}, wanted)
        return self.parameter(wanted)

    def value(self, wanted: Wanted, depth: int = 1) -> HloInstruction:
        """Any expression of at most so many operations above leaves."""
        if depth and self.chance(0.45):
            try:
                return self.by_opcode(self.choose(sorted(self.planners)), wanted, depth - 1)
            except Impossible:
                pass
        if self.chance(0.15):
            shape = ArrayShape(wanted.dtype, wanted.dims)
            same = [i for i in self.computation if i.shape == shape]
            if same:
                return self.choose(same)
        return self.leaf(wanted)

    def indices(self, wanted: Wanted, limit: int) -> HloInstruction:
        """Positions, some of them outside of 0..limit and some at the ends of the type."""
        dtype = wanted.dtype
        count = math.prod(wanted.dims)
        low, high = (-2, limit + 2) if dtype.is_signed else (0, limit + 2)
        inside = self.rng.integers(low, high + 1, count)
        values = np.minimum(inside, min(integer_limits(dtype)[1], limit + 2)).astype(dtype.numpy)
        special = edge_values(dtype)
        chosen = special[self.rng.integers(0, len(special), count)]
        mixed = np.where(self.rng.random(count) < 0.1, chosen, values).reshape(wanted.dims)
        if self.chance(0.4):
            return self.literal(dtype, mixed)
        return self.parameter(wanted, mixed)

    def by_opcode(self, opcode: str, wanted: Wanted, depth: int = 0) -> HloInstruction:
        """An instruction of that opcode of any operands."""
        plan = self.planners[opcode](self, wanted)
        return self._made(opcode, plan, wanted, [self._any(o, depth) for o in plan.operands])

    def match(
        self, pattern: Pattern, wanted: Wanted, bound: dict[str, HloInstruction] | None = None
    ) -> HloInstruction:
        """A random instruction that matches a pattern."""
        bound = {} if bound is None else bound
        if isinstance(pattern, Splat):
            return self.splat(wanted, pattern.value)
        if isinstance(pattern, Var):
            if pattern.name not in bound:
                bound[pattern.name] = self.value(wanted)
            return bound[pattern.name]
        known = [o for o in pattern.opcodes if o in self.planners]
        if not known:
            raise LookupError(
                f"no planner makes {' or '.join(pattern.opcodes)}: add one to PLANNERS"
            )
        opcode = self.choose(known)
        plan = self.planners[opcode](self, wanted)
        if not pattern.operands:
            return self._made(opcode, plan, wanted, [self._any(o, 1) for o in plan.operands])
        if len(pattern.operands) != len(plan.operands):
            raise Impossible
        made = [
            o if isinstance(o, HloInstruction) else self.match(inner, o, bound)
            for inner, o in zip(pattern.operands, plan.operands, strict=True)
        ]
        return self._made(opcode, plan, wanted, made)

    def _any(self, operand: Wanted | HloInstruction, depth: int) -> HloInstruction:
        return operand if isinstance(operand, HloInstruction) else self.value(operand, depth)

    def _made(
        self, opcode: str, plan: Plan, wanted: Wanted, operands: Sequence[HloInstruction]
    ) -> HloInstruction:
        instr = self.emit(opcode, operands, plan.attrs, wanted)
        if instr.shape != ArrayShape(wanted.dtype, wanted.dims):
            raise Impossible(f"{opcode} gives {instr.shape}, wanted {wanted}")
        return instr

    def finish(self, root: HloInstruction) -> HloModule:
        """The module whose result is `root`."""
        computation = self.computation
        computation.root = root
        for instr in list(computation.instructions)[::-1]:
            remove_dead(instr)  # what draws that came to nothing left behind
        computation.sort()
        self.module.add_computation(computation, keep_names=True)
        self.module.entry_name = computation.name
        parameters = tuple(p.shape for p in computation.parameters)
        self.module.attrs["entry_computation_layout"] = ComputationLayout(parameters, root.shape)
        return self.module


def _exact(dtype: DType, value: object) -> object:
    """A pattern's value in a type that has it exactly."""
    assert isinstance(value, int | float)
    if isinstance(value, bool) != (dtype.kind == "pred"):
        raise Impossible
    with np.errstate(all="ignore"):
        scalar = np.asarray(value).astype(dtype.numpy).reshape(-1)[0]
    if not dtype.is_complex and not equals_exactly(scalar, value):
        raise Impossible
    return scalar
