"""Random programs mean the same after the whole pipeline as before it."""

from __future__ import annotations

import random

import numpy as np
import pytest

from compiler.analysis.buffer_assignment import assign_buffers
from compiler.analysis.buffer_check import check_buffers
from compiler.analysis.window_planner import WindowPlanner
from compiler.hlo.builder import HloBuilder
from compiler.hlo.dtypes import F32
from compiler.hlo.evaluator import evaluate
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.shape import ArrayShape, TupleShape, array
from compiler.passes.pipeline import run_pipeline
from tpu_sim.isa.chips import load_chip

SHAPES = ((8, 16), (4, 2, 16), (16, 8), (2, 8, 8), (128,), (1, 128), (8, 1, 16))
UNARY = ("negate", "abs", "tanh", "floor", "sign")
BINARY = ("add", "subtract", "multiply", "maximum", "minimum")


class _Maker:
    """Grows a random program over a pool of values, each of 128 elements or derived from such."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.builder = HloBuilder("main")
        self.adders = {k: self._reducer(k) for k in ("add", "maximum")}
        self.pool = [
            self.builder.parameter(array(F32, *self.random.choice(SHAPES))) for _ in range(4)
        ]

    def _reducer(self, kind: str) -> HloComputation:
        inner = HloBuilder(kind, self.builder.module)
        a, b = inner.parameter(array(F32)), inner.parameter(array(F32))
        return inner.build(inner.binary(kind, a, b))

    def grow(self, count: int) -> HloModule:
        steps = (
            self.unary, self.binary, self.binary, self.reshape, self.transpose,
            self.row_reduce, self.column_reduce, self.slice_and_join, self.dot, self.scale,
        )  # fmt: skip
        for _ in range(count):
            self.pool.append(self.random.choice(steps)())
        chosen = self.random.sample(self.pool, 4)
        shape = TupleShape(tuple(c.shape for c in chosen))
        root = self.builder.computation.add(HloInstruction("tuple", "tuple", shape, chosen))
        return self.builder.build_entry(root)

    def any(self) -> HloInstruction:
        return self.random.choice(self.pool)

    def like(self, dims: tuple[int, ...]) -> HloInstruction:
        found = self.any()
        if found.array.element_count == int(np.prod(dims)):
            return self.builder.reshape(found, dims)
        zero = self.builder.constant(F32, self.random.choice((0.0, 1.0, -0.0, 0.5)))
        return self.builder.broadcast(zero, dims)

    def unary(self) -> HloInstruction:
        return self.builder.unary(self.random.choice(UNARY), self.any())

    def binary(self) -> HloInstruction:
        left = self.any()
        right = self.like(left.array.dims)
        return self.builder.binary(self.random.choice(BINARY), left, right)

    def reshape(self) -> HloInstruction:
        operand = self.any()
        options = [s for s in SHAPES if int(np.prod(s)) == operand.array.element_count]
        return self.builder.reshape(operand, self.random.choice(options or [operand.array.dims]))

    def transpose(self) -> HloInstruction:
        operand = self.any()
        order = list(range(operand.array.rank))
        self.random.shuffle(order)
        return self.builder.transpose(operand, tuple(order))

    def row_reduce(self) -> HloInstruction:
        return self._reduce(-1)

    def column_reduce(self) -> HloInstruction:
        return self._reduce(0)

    def _reduce(self, dim: int) -> HloInstruction:
        operand = self.any()
        if operand.array.rank < 2:
            return operand
        reduced = dim % operand.array.rank
        kind = self.random.choice(("add", "maximum"))
        init = self.builder.constant(F32, 0.0 if kind == "add" else float("-inf"))
        attrs: dict[str, object] = {"dimensions": (reduced,), "to_apply": self.adders[kind]}
        sums = self.builder.instruction("reduce", (operand, init), attrs)
        kept = tuple(d for d in range(operand.array.rank) if d != reduced)
        wide = self.builder.broadcast(sums, operand.array.dims, kept)
        return self.builder.subtract(operand, wide)

    def slice_and_join(self) -> HloInstruction:
        operand = self.any()
        size = operand.array.dims[-1]
        if size < 2:
            return operand
        whole = [(0, n, 1) for n in operand.array.dims[:-1]]
        attrs_low: dict[str, object] = {"slice": (*whole, (0, size // 2, 1))}
        attrs_high: dict[str, object] = {"slice": (*whole, (size // 2, size, 1))}
        low = self.builder.instruction("slice", (operand,), attrs_low)
        high = self.builder.instruction("slice", (operand,), attrs_high)
        return self.builder.concatenate((high, low), operand.array.rank - 1)

    def dot(self) -> HloInstruction:
        left, right = self.like((8, 16)), self.like((16, 8))
        attrs: dict[str, object] = {"lhs_contracting_dims": (1,), "rhs_contracting_dims": (0,)}
        product = self.builder.instruction("dot", (left, right), attrs)
        return self.builder.broadcast(product, (2, 8, 8), (1, 2))

    def scale(self) -> HloInstruction:
        operand = self.any()
        factor = self.builder.constant(F32, self.random.choice((1.0, 2.0, 0.25)))
        wide = self.builder.broadcast(factor, operand.array.dims)
        return self.builder.divide(operand, wide)


@pytest.mark.parametrize("seed", range(40))
def test_random_program_keeps_its_values(seed: int) -> None:
    module = _Maker(seed).grow(18)
    rng = np.random.default_rng(seed)
    args = []
    for parameter in module.entry.parameters:
        assert isinstance(parameter.shape, ArrayShape)
        args.append(rng.uniform(-1, 1, parameter.array.dims).astype(np.float32))
    wanted = evaluate(module, args, "highest")
    chip = load_chip("v5e")
    run_pipeline(module, chip)
    for found, want in zip(evaluate(module, args, "highest"), wanted, strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)
    check_buffers(module, assign_buffers(module, chip), WindowPlanner(chip))
