"""Which parts of a component get loops of their own, and that machines agree where some do."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.run_hlo import compile_text, run_compiled
from tpu_sim.isa.chips import load_chip
from tpu_sim.jit.component import Component, LocalOp, direct_values
from tpu_sim.jit.emitter import TUNED
from tpu_sim.jit.partial_values import equal_runs, partial_values
from tpu_sim.jit.program_translator import translate_program
from tpu_sim.jit.translated import RUN
from tpu_sim.jit.values import OperationRole, Use

REDUCE = """HloModule m
%combine (p: f32[], q: f32[]) -> f32[] {{
  %p = f32[] parameter(0)
  %q = f32[] parameter(1)
  ROOT %r = f32[] {opcode}(%p, %q)
}}
ENTRY e {{
  x = f32[{rows},{columns}] parameter(0)
  z = f32[] constant(0)
  ROOT s = f32[{rows}] reduce(x, z), dimensions={{1}}, to_apply=%combine
}}
"""


def _chain(count: int, kept: int = -1) -> Component:
    """The sum of so many vregs, one after the other, stored; so is the partial sum `kept`."""
    ops = [LocalOp(OperationRole.LOAD, "", (), False, 0, 8 * k) for k in range(count)]
    total = 0
    for k in range(1, count):
        ops.append(LocalOp(OperationRole.POINT, "vadd.f32", (Use(total), Use(k)), False))
        total = len(ops) - 1
    for value in {total, kept} - {-1}:
        ops.append(LocalOp(OperationRole.STORE, "", (Use(value),), False, 1, 8 * value))
    return Component(tuple(ops), (0, 1))


def _balanced(count: int) -> Component:
    ops = [LocalOp(OperationRole.LOAD, "", (), False, 0, 8 * k) for k in range(count)]
    left = list(range(count))
    while len(left) > 1:
        ops.append(LocalOp(OperationRole.POINT, "vadd.f32", (Use(left[0]), Use(left[1])), False))
        left = [*left[2:], len(ops) - 1]
    ops.append(LocalOp(OperationRole.STORE, "", (Use(left[0]),), False, 1, 0))
    return Component(tuple(ops), (0, 1))


def _streams(component: Component) -> list[int]:
    found = partial_values(component, direct_values(component))
    return [sum(component.ops[i].role is OperationRole.LOAD for i in part.ops) for part in found]


def test_a_tree_is_cut_into_sums_of_eight() -> None:
    assert _streams(_balanced(32)) == [8, 8, 8, 8]
    assert _streams(_balanced(8)) == []


def test_equal_sums_are_one_loop() -> None:
    """Neighbours at equal distances; one that reads elsewhere, or adds otherwise, is its own."""

    def runs(component: Component) -> list[tuple[int, int]]:
        parts = partial_values(component, direct_values(component))
        return [(run.count, run.step_rows) for run in equal_runs(component, parts)]

    whole = _balanced(32)
    assert runs(whole) == [(4, 64)]
    product = [op._replace(name="vmul.f32") if n == 33 else op for n, op in enumerate(whole.ops)]
    assert runs(Component(tuple(product), (0, 1))) == [(1, 0), (3, 64)]
    moved = [op._replace(offset=999) if n == 31 else op for n, op in enumerate(whole.ops)]
    assert runs(Component(tuple(moved), (0, 1))) == [(3, 64), (1, 0)]


def test_one_chain_is_not_cut() -> None:
    """Only its first part reads few vregs and nothing else."""
    assert _streams(_chain(32)) == []


def test_what_others_read_stays() -> None:
    """Of sums of eight only those count that nothing else takes a part of."""
    whole = _balanced(16)
    ops = (*whole.ops, LocalOp(OperationRole.STORE, "", (Use(16),), False, 1, 8))
    assert _streams(Component(ops, (0, 1))) == []


@pytest.mark.parametrize(("columns", "is_tuned"), [(4096, True), (256, False)])
def test_what_reads_many_vregs_in_turn_gets_lean_code(columns: int, is_tuned: bool) -> None:
    compiled = compile_text(REDUCE.format(opcode="add", rows=64, columns=columns))
    texts = translate_program(compiled.program, load_chip("v5e"), RUN).texts
    components = [text for text in texts if text.startswith("define void @component")]
    assert components and any(f" {TUNED} {{" in text for text in components) == is_tuned


@pytest.mark.parametrize("opcode", ["add", "maximum"])
@pytest.mark.parametrize(("rows", "columns"), [(16, 4096), (9, 2100)])
def test_long_rows(opcode: str, rows: int, columns: int) -> None:
    x = np.random.default_rng(rows).standard_normal((rows, columns)).astype(np.float32)
    compiled = compile_text(REDUCE.format(opcode=opcode, rows=rows, columns=columns))
    results = [run_compiled(compiled, [x], machine).outputs[0] for machine in ("numpy", "llvm")]
    np.testing.assert_array_equal(results[0], results[1])
