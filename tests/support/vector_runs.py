"""Compiles one computation as a single vector stage over whole arrays and runs its LLO."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np
import numpy.typing as npt

from compiler.analysis.kernel_vmem import held_rows
from compiler.backend.vector.arrays import GUARD_ROWS, VmemArray, whole_array
from compiler.backend.vector.vector_emitter import VectorEmitter
from compiler.hlo.evaluator.interpreter import evaluate_computation
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.parser import parse_module
from compiler.hlo.shape import ArrayShape
from compiler.llo.builder import LloBuilder
from tests.support.llo_machine import LloMachine, put, take
from tpu_sim.isa.chips import load_chip

Array = npt.NDArray[np.generic]


def parse_body(lines: str) -> HloComputation:
    """An entry computation from its instruction lines (and computations before a ``---``)."""
    head, _, body = lines.rpartition("---")
    text = f"HloModule m\n{head}\nENTRY e {{\n{body}\n}}\n"
    return parse_module(text).entry


def new_window(builder: LloBuilder, shape: ArrayShape, name: str, guard: bool) -> VmemArray:
    window = builder.window(name, held_rows(shape, shape.dims) - (0 if guard else GUARD_ROWS))
    return whole_array(shape, window, guard=GUARD_ROWS if guard else 0)


def roots_of(computation: HloComputation) -> list[HloInstruction]:
    root = computation.root_instruction
    if root.opcode == "tuple":
        return list(root.operands)
    return [root]


class Run:
    """Results, expected results and the machine, for looking at instruction counts."""

    def __init__(
        self, lines: str, args: Sequence[Array], *, guard: bool = False, scalars: bool = False
    ) -> None:
        self.computation = parse_body(lines)
        self.expected = evaluate_computation(self.computation, args)
        builder = LloBuilder("test", load_chip("v5e"))
        bindings: dict[HloInstruction, VmemArray] = {}
        in_sregs: dict[HloInstruction, int] = {}
        smem: dict[int, int] = {}
        for number, parameter in enumerate(self.computation.parameters):
            if scalars and parameter.array.rank == 0:
                in_sregs[parameter] = builder.argument(number)
                smem[number] = int(np.asarray(args[number]).astype(np.int64))
            else:
                bindings[parameter] = new_window(builder, parameter.array, parameter.name, guard)
        emitter = VectorEmitter(builder, dict(bindings), {}, in_sregs)
        targets = self.emit(builder, emitter)
        self.kernel = builder.finish()
        self.machine = LloMachine(self.kernel, smem)
        for parameter, value in zip(self.computation.parameters, args, strict=True):
            if parameter in bindings:
                put(self.machine, bindings[parameter], value)
        self.machine.run()
        self.results = [take(self.machine, target) for target in targets]

    def emit(self, builder: LloBuilder, emitter: VectorEmitter) -> list[VmemArray]:
        roots = roots_of(self.computation)
        targets = [new_window(builder, root.array, root.name, False) for root in roots]
        emitter.emit_stage(roots, targets)
        return targets

    def check(self, ulp: float = 0) -> None:
        """Results equal the evaluator's, floats within `ulp` units of their own type."""
        assert len(self.results) == len(self.expected)
        for got, want in zip(self.results, self.expected, strict=True):
            assert got.shape == want.shape and got.dtype == want.dtype
            assert_close(got, want, ulp)

    def count(self, name: str) -> int:
        return self.machine.counts.get(name, 0)


def assert_close(got: Array, want: Array, ulp: float) -> None:
    if ulp == 0 or got.dtype.kind in "biu":
        equal = (got == want) | ((got != got) & (want != want))
        assert equal.all(), f"{(~equal).sum()} differ, first at {np.argwhere(~equal)[0]}"
        return
    g, w = got.astype(np.float64), want.astype(np.float64)
    error = ulp_error(g, w, got.dtype)
    worst = int(np.argmax(error))
    text = f"{error.reshape(-1)[worst]:.2f} ulp: {g.reshape(-1)[worst]} for {w.reshape(-1)[worst]}"
    assert error.max() <= ulp, text


def ulp_error(g: Array, w: Array, dtype: np.dtype[np.generic]) -> npt.NDArray[np.float64]:
    """|g - w| in units of the last place of w in `dtype`; 0 where both are the same special."""
    info = ml_dtypes.finfo(dtype)
    scale = np.maximum(np.abs(w), float(info.smallest_normal))
    with np.errstate(all="ignore"):
        ulp = 2.0 ** np.floor(np.log2(scale)) * float(info.eps)
        error = np.abs(g - w) / ulp
    same = (g == w) | (np.isnan(g) & np.isnan(w))
    return np.where(same, 0.0, np.where(np.isfinite(error), error, np.inf))
