"""Reduction stages over every kind of dimension, against the evaluator."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from compiler.analysis.indexing import const
from compiler.analysis.kernel_vmem import held_rows
from compiler.backend.vector.arrays import GUARD_ROWS, VmemArray, whole_array
from compiler.backend.vector.vector_emitter import VectorEmitter
from compiler.hlo.dtypes import BY_NAME
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape, TupleShape, leaves
from compiler.llo.builder import LloBuilder
from tests.support.vector_runs import Array, Run, assert_close

ARGMAX = """argmax { a=f32[] parameter(0)
    i=s32[] parameter(1)
    b=f32[] parameter(2)
    j=s32[] parameter(3)
    g=pred[] compare(a,b), direction=GT
    n=pred[] compare(a,a), direction=NE
    o=pred[] or(g,n)
    q=pred[] compare(a,b), direction=EQ
    l=pred[] compare(i,j), direction=LT
    ql=pred[] and(q,l)
    oi=pred[] or(o,ql)
    v=f32[] select(o,a,b)
    k=s32[] select(oi,i,j)
    ROOT t=(f32[],s32[]) tuple(v,k) }
---
"""


class ReduceRun(Run):
    """The root is a reduce (or a tuple of them), computed by one reduction stage."""

    replicated = False

    def emit(self, builder: LloBuilder, emitter: VectorEmitter) -> list[VmemArray]:
        root = self.computation.root_instruction
        reduces = list(root.operands) if root.opcode == "tuple" else [root]
        targets = [
            [self._target(builder, shape) for shape in leaves(reduce.shape)] for reduce in reduces
        ]
        self.stage(emitter, reduces, targets)
        return [target for row in targets for target in row]

    def stage(
        self,
        emitter: VectorEmitter,
        reduces: list[HloInstruction],
        targets: Sequence[Sequence[VmemArray]],
    ) -> None:
        emitter.emit_reduce_stage(reduces, targets)

    def _target(self, builder: LloBuilder, shape: ArrayShape | TupleShape) -> VmemArray:
        assert isinstance(shape, ArrayShape)
        replicated = self.replicated and shape.rank > 0
        rows = held_rows(shape, shape.dims, replicated=replicated) - GUARD_ROWS
        window = builder.window("result", rows)
        return whole_array(shape, window, replicated=replicated)


class ReplicatedRun(ReduceRun):
    replicated = True


def monoid(opcode: str, dtype: str) -> str:
    return f"""body {{ a={dtype}[] parameter(0)
        b={dtype}[] parameter(1)
        ROOT c={dtype}[] {opcode}(a,b) }}
        ---
        """


def reduce_text(
    dtype: str, dims: Sequence[int], over: Sequence[int], opcode: str, init: str
) -> str:
    kept = [n for d, n in enumerate(dims) if d not in over]
    return f"""{monoid(opcode, dtype)}
        p={dtype}[{",".join(map(str, dims))}] parameter(0)
        z={dtype}[] constant({init})
        ROOT r={dtype}[{",".join(map(str, kept))}] reduce(p,z),
            dimensions={{{",".join(map(str, over))}}}, to_apply=body"""


def whole_numbers(dtype: str, *dims: int, seed: int = 0) -> Array:
    """Small whole numbers, of which f32 and bf16 sums are exact in any order."""
    rng = np.random.default_rng(seed)
    return rng.integers(-3, 4, dims).astype(BY_NAME[dtype].numpy)


SHAPES = [
    ((20, 300), (1,)),
    ((3, 20, 300), (2,)),
    ((2, 9, 9000), (2,)),
    ((10, 20, 300), (1, 2)),
    ((10, 20, 300), (0, 2)),
    ((3, 4, 20, 130), (1, 3)),
    ((10, 20, 300), (0, 1, 2)),
    ((3000,), (0,)),
    ((20, 300), (0,)),
    ((1200, 140), (0,)),
    ((4, 20, 300), (0, 1)),
    ((14, 20, 300), (1,)),
    ((3, 4, 20, 130), (0, 2)),
    ((14, 20, 300), (0,)),
    ((5, 1), (1,)),
    ((1, 5), (0,)),
]


@pytest.mark.parametrize("dtype", ["f32", "bf16", "s32"])
@pytest.mark.parametrize(("dims", "over"), SHAPES)
def test_sums(dims: tuple[int, ...], over: tuple[int, ...], dtype: str) -> None:
    text = reduce_text(dtype, dims, over, "add", "1")
    values = whole_numbers(dtype, *dims)
    run = ReduceRun(text, (values,))
    exact = values.astype(np.float64).sum(axis=over) + 1
    assert_close(run.results[0], exact.astype(values.dtype), 0)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_row_sums_stay_replicated_for_later_stages(dtype: str) -> None:
    values = whole_numbers(dtype, 3, 20, 300)
    run = ReplicatedRun(reduce_text(dtype, (3, 20, 300), (2,), "add", "0"), (values,))
    exact = values.astype(np.float64).sum(axis=2)
    assert_close(run.results[0], exact.astype(values.dtype), 0)
    assert run.count("vld.idx") == 0


@pytest.mark.parametrize(
    ("opcode", "dtype", "init"),
    [
        ("maximum", "f32", "-inf"),
        ("minimum", "f32", "inf"),
        ("multiply", "f32", "1"),
        ("maximum", "u8", "0"),
        ("minimum", "s8", "127"),
        ("and", "s32", "-1"),
        ("xor", "u16", "0"),
        ("add", "s8", "0"),
    ],
)
@pytest.mark.parametrize("over", [(1,), (0,)])
def test_monoids(opcode: str, dtype: str, init: str, over: tuple[int, ...]) -> None:
    values = whole_numbers(dtype, 20, 140)
    if opcode == "multiply":
        values = np.where(values == 0, 1, np.sign(values)).astype(values.dtype)
    ReduceRun(reduce_text(dtype, (20, 140), over, opcode, init), (values,)).check()


@pytest.mark.parametrize("opcode", ["or", "and"])
@pytest.mark.parametrize("over", [(1,), (0,), (0, 1)])
def test_reductions_of_pred(opcode: str, over: tuple[int, ...]) -> None:
    init = "false" if opcode == "or" else "true"
    values = np.random.default_rng(0).random((20, 300)) > (0.997 if opcode == "or" else 0.003)
    ReduceRun(reduce_text("pred", (20, 300), over, opcode, init), (values,)).check()


@pytest.mark.parametrize("dimension", [0, 1])
def test_variadic_reducer_keeps_the_first_maximum(dimension: int) -> None:
    kept = 300 if dimension == 0 else 20
    text = f"""{ARGMAX}
        p=f32[20,300] parameter(0)
        q=s32[20,300] iota(), iota_dimension={dimension}
        z=f32[] constant(-inf)
        y=s32[] constant(0)
        ROOT r=(f32[{kept}],s32[{kept}]) reduce(p,q,z,y), dimensions={{{dimension}}},
            to_apply=argmax"""
    ReduceRun(text, (whole_numbers("f32", 20, 300),)).check()


@pytest.mark.parametrize("dtype", ["f32", "bf16", "s32", "s8"])
@pytest.mark.parametrize("rows", [9, 20, 196])
@pytest.mark.parametrize("cols", [64, 300, 1500])
def test_rows_of_what_is_transposed_go_through_the_transpose_units(
    rows: int, cols: int, dtype: str
) -> None:
    text = f"""{monoid("add", dtype)}
        p={dtype}[2,{cols},{rows}] parameter(0)
        q={dtype}[2,{rows},{cols}] parameter(1)
        t={dtype}[2,{rows},{cols}] transpose(p), dimensions={{0,2,1}}
        z={dtype}[] constant(0)
        m={dtype}[2,{rows},{cols}] multiply(t,q)
        a={dtype}[2,{rows}] reduce(t,z), dimensions={{2}}, to_apply=body
        b={dtype}[2,{rows}] reduce(m,z), dimensions={{2}}, to_apply=body
        ROOT r=({dtype}[2,{rows}],{dtype}[2,{rows}]) tuple(a,b)"""
    values = whole_numbers(dtype, 2, cols, rows), whole_numbers(dtype, 2, rows, cols, seed=1)
    run = ReplicatedRun(text, values) if dtype != "s8" else ReduceRun(text, values)
    turned, other = (v.astype(np.int64) for v in (values[0].transpose(0, 2, 1), values[1]))
    for found, exact in zip(run.results, (turned.sum(2), (turned * other).sum(2)), strict=True):
        assert_close(found, exact.astype(values[0].dtype), 0)
    assert run.count("vxpose.push") > 0
    assert run.count("vld.idx") == 0 or dtype == "s8"  # whose results go to packed rows


def test_columns_of_a_concatenation_are_summed_each_in_its_way() -> None:
    """Which part a column of the result has is known while emitting: others are not loaded."""
    parts = "\n".join(f"p{n}=f32[40,8,128] parameter({n})" for n in range(6))
    text = f"""{monoid("add", "f32")}
        {parts}
        c=f32[40,8,768] concatenate(p0,p1,p2,p3,p4,p5), dimensions={{2}}
        z=f32[] constant(0)
        s=f32[40,8,768] multiply(c,c)
        ROOT r=f32[8,768] reduce(s,z), dimensions={{0}}, to_apply=body"""
    run = ReduceRun(text, [whole_numbers("f32", 40, 8, 128)] * 6)
    run.check()
    assert run.count("vsel") == 0


def test_fused_producers_and_two_results_share_loads() -> None:
    text = f"""{monoid("add", "f32")}
        p=f32[16,256] parameter(0)
        s=f32[16,256] multiply(p,p)
        z=f32[] constant(0)
        a=f32[16] reduce(p,z), dimensions={{1}}, to_apply=body
        b=f32[16] reduce(s,z), dimensions={{1}}, to_apply=body
        ROOT t=(f32[16],f32[16]) tuple(a,b)"""
    run = ReplicatedRun(text, (whole_numbers("f32", 16, 256),))
    run.check()
    assert run.count("vld") == 4


class SoftmaxRun(Run):
    """Row maximum, then row sum, then the quotient, each a stage of its own."""

    def emit(self, builder: LloBuilder, emitter: VectorEmitter) -> list[VmemArray]:
        for node in self.computation:
            if node.opcode == "reduce":
                shape = node.array
                rows = held_rows(shape, shape.dims, replicated=True)
                scratch = whole_array(
                    shape, builder.window(node.name, rows), replicated=True, guard=GUARD_ROWS
                )
                emitter.emit_reduce_stage([node], [[scratch]])
                emitter.bindings[node] = scratch
        return super().emit(builder, emitter)


def test_softmax_as_three_stages() -> None:
    text = f"""{monoid("add", "f32")}
        p=f32[24,200] parameter(0)
        low=f32[] constant(-inf)
        z=f32[] constant(0)
        m=f32[24] reduce(p,low), dimensions={{1}}, to_apply=most
        mb=f32[24,200] broadcast(m), dimensions={{0}}
        d=f32[24,200] subtract(p,mb)
        e=f32[24,200] exponential(d)
        s=f32[24] reduce(e,z), dimensions={{1}}, to_apply=body
        sb=f32[24,200] broadcast(s), dimensions={{0}}
        ROOT r=f32[24,200] divide(e,sb)"""
    text = monoid("maximum", "f32").replace("body", "most").replace("---", "") + text
    values = np.random.default_rng(0).standard_normal((24, 200)).astype(np.float32)
    run = SoftmaxRun(text, (values,))
    run.check(ulp=8)
    assert run.count("vld.idx") == 0


class SteppedRun(ReduceRun):
    """The reduced rows in three grid steps of 40, accumulated in the target."""

    def stage(
        self,
        emitter: VectorEmitter,
        reduces: list[HloInstruction],
        targets: Sequence[Sequence[VmemArray]],
    ) -> None:
        for step in range(3):
            emitter.emit_reduce_stage(
                reduces,
                targets,
                reduced=((const(40 * step), 40),),
                accumulate=emitter.builder.sconst(step),
            )


def test_accumulation_over_grid_steps() -> None:
    values = whole_numbers("f32", 105, 140)
    text = reduce_text("f32", (105, 140), (0,), "add", "5")
    SteppedRun(text, (values,)).check()
