"""Orders of dimensions change where numbers lie, not what a program computes."""

from __future__ import annotations

import random

import numpy as np
import pytest

from benchmarks.fuzz.generator import generate
from benchmarks.fuzz.inputs import inputs_for
from compiler.analysis.code_costs import OrderCosts
from compiler.analysis.tiled_layout import byte_size
from compiler.hlo.evaluator import evaluate
from compiler.hlo.ir import HloModule
from compiler.hlo.parser import parse_module
from compiler.hlo.shape import ArrayShape, TupleShape
from compiler.hlo.verifier import Level, verify
from compiler.passes.dimension_order.orders import reorder_cycles, vregs
from compiler.passes.dimension_order.planner import OrderPlan
from compiler.passes.dimension_order.rewriter import OrderRewriter
from compiler.passes.pipeline import PIPELINE, run_pipeline
from tests.support.run_hlo import check_text, compile_text
from tpu_sim.isa.chips import load_chip

CHIP = load_chip("v5e")
BEFORE = PIPELINE[: PIPELINE.index("dimension-order")]
ADD = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = f32[] add(a, b) }\n"
LOOP = """HloModule m
body {
  s = (s32[], f32[8,6,5], f32[4,6,5]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  xs = f32[8,6,5] get-tuple-element(s), index=1
  c = f32[4,6,5] get-tuple-element(s), index=2
  z = s32[] constant(0)
  x = f32[2,6,5] dynamic-slice(xs, i, z, z), dynamic_slice_sizes={2,6,5}
  u = f32[8,6,5] dynamic-update-slice(xs, x, z, i, z)
  f = f32[] constant(0.5)
  p = f32[4,6,5] pad(x, f), padding=1_1x0_0x1_-1
  v = f32[4,6,5] reverse(p), dimensions={1}
  d = f32[4,6,5] add(c, v)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT t = (s32[], f32[8,6,5], f32[4,6,5]) tuple(j, u, d)
}
condition {
  s = (s32[], f32[8,6,5], f32[4,6,5]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT r = pred[] compare(i, n), direction=LT
}
ENTRY main {
  p = f32[8,6,5] parameter(0)
  c = f32[4,6,5] parameter(1)
  i = s32[] constant(0)
  s = (s32[], f32[8,6,5], f32[4,6,5]) tuple(i, p, c)
  w = (s32[], f32[8,6,5], f32[4,6,5]) while(s), condition=condition, body=body
  ROOT r = f32[4,6,5] get-tuple-element(w), index=2
}
"""
BRANCHES = """HloModule m
yes {
  x = f32[6,5,3] parameter(0)
  t = f32[5,6,3] transpose(x), dimensions={1,0,2}
  ROOT r = f32[5,18] reshape(t)
}
no {
  x = f32[6,5,3] parameter(0)
  ROOT r = f32[5,18] reshape(x)
}
largest { a = f32[] parameter(0)
 i = s32[] parameter(1)
 b = f32[] parameter(2)
 j = s32[] parameter(3)
 c = pred[] compare(a, b), direction=GE
 v = f32[] select(c, a, b)
 k = s32[] select(c, i, j)
 ROOT t = (f32[], s32[]) tuple(v, k) }
ENTRY main {
  p = f32[6,5,3] parameter(0)
  q = f32[5,3,4] parameter(1)
  k = pred[] constant(true)
  a = f32[5,18] conditional(k, p, p), true_computation=yes, false_computation=no
  d = f32[5,6,4] dot(p, q), lhs_batch_dims={1}, rhs_batch_dims={0}, @
  n = s32[5,6,4] iota(), iota_dimension=1
  f = f32[] constant(-inf)
  o = s32[] constant(0)
  m = (f32[5,4], s32[5,4]) reduce(d, n, f, o), dimensions={1}, to_apply=largest
  v = f32[5,4] get-tuple-element(m), index=0
  w = s32[5,4] get-tuple-element(m), index=1
  g = f32[5,4] convert(w)
  h = f32[5,4] add(g, v)
  l = f32[5,22] concatenate(a, h), dimensions={1}
  ROOT r = (f32[5,22], f32[5,6,4]) tuple(l, d)
}
""".replace("@", "lhs_contracting_dims={2}, rhs_contracting_dims={1}")
SLICES = """HloModule m
last {
  a = f32[] parameter(0)
  ROOT b = f32[] parameter(1)
}
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
ENTRY main {
  p = f32[9,7,6] parameter(0)
  i = s32[2,5] parameter(1)
  u = f32[5,9,2] parameter(2)
  j = s32[4,3] parameter(3)
  v = f32[4,3,7,6] parameter(4)
  k = s32[9,8] parameter(5)
  w = f32[9,8,6] parameter(6)
  s = f32[9,7,6] sine(p)
  t = f32[9,7,6] scatter(s, i, u), update_window_dims={1,2}, inserted_window_dims={1},
    scatter_dims_to_operand_dims={1,2}, index_vector_dim=0, to_apply=last
  x = f32[9,7,6] scatter(t, j, v), update_window_dims={2,3}, inserted_window_dims={0},
    scatter_dims_to_operand_dims={0}, index_vector_dim=2, to_apply=sum
  y = f32[9,7,6] scatter(x, k, w), update_window_dims={2}, inserted_window_dims={1},
    scatter_dims_to_operand_dims={1}, index_vector_dim=2, input_batching_dims={0},
    scatter_indices_batching_dims={0}, to_apply=sum
  c = f32[9,7,6] negate(y)
  g = f32[5,9,2] gather(c, i), offset_dims={1,2}, collapsed_slice_dims={1}, start_index_map={1,2},
    index_vector_dim=0, slice_sizes={9,1,2}
  h = f32[4,5,3,6] gather(c, j), offset_dims={1,3}, collapsed_slice_dims={0}, start_index_map={1},
    index_vector_dim=2, slice_sizes={1,5,6}
  n = f32[5,9,2] negate(g)
  o = f32[4,5,3,6] sine(h)
  e = f32[9,8,6] gather(c, k), offset_dims={2}, collapsed_slice_dims={1}, start_index_map={1},
    index_vector_dim=2, operand_batching_dims={0}, start_indices_batching_dims={0}, slice_sizes={1,1,6}
  ROOT r = (f32[5,9,2], f32[4,5,3,6], f32[9,8,6]) tuple(n, o, e)
}
"""


def in_random_orders(module: HloModule, seed: int, share: float) -> int:
    """Give all arrays that may have one a random order; return how many instructions changed."""
    rng = random.Random(seed)
    plan = OrderPlan(module, CHIP)
    for home, members in plan.arrays.members.items():
        if home not in plan.arrays.fixed and rng.random() < share:
            order = list(plan.order(*members[0]))
            rng.shuffle(order)
            plan.orders[home] = tuple(order)
    return OrderRewriter(plan).run()


def check_any_order(module: HloModule, seed: int, share: float = 1.0) -> int:
    arguments = inputs_for(module, seed)
    wanted = evaluate(module, arguments, "highest")
    count = in_random_orders(module, seed, share)
    verify(module, Level.PARSED)
    for found, want in zip(evaluate(module, arguments, "highest"), wanted, strict=True):
        assert found.shape == want.shape
        assert found.dtype == want.dtype
        a, b = (np.asarray(x).astype(np.complex128) for x in (found, want))
        scale = np.abs(b[np.isfinite(b)]).max(initial=0.0)
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-3 * scale)
    return count


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("text", [LOOP, BRANCHES, SLICES], ids=["loop", "branches", "slices"])
def test_any_orders_keep_values(text: str, seed: int) -> None:
    share = 1.0 if seed % 2 else 0.5
    assert check_any_order(parse_module(text), seed, share) or share < 1


@pytest.mark.filterwarnings("ignore")
def test_any_orders_keep_values_of_random_programs() -> None:
    chip, changed = load_chip("v5e"), 0
    for seed in range(16):
        module = parse_module(generate(seed))
        run_pipeline(module, chip, passes=BEFORE)
        changed += check_any_order(module, seed) > 0
    assert changed > 6


def largest_intermediate(text: str) -> int:
    module = compile_text(text).module
    sizes = [0]
    for instr in module.entry:
        if instr.opcode in ("fusion", "copy"):
            parts = instr.shape.elements if isinstance(instr.shape, TupleShape) else (instr.shape,)
            sizes += [byte_size(p) for p in parts if isinstance(p, ArrayShape)]
    return max(sizes)


def test_a_last_dimension_of_one_is_not_padded() -> None:
    text = (
        "HloModule m\n" + ADD + "ENTRY main {\n p = f32[96,64,130] parameter(0)\n"
        " u = f32[1,48,64,130,1] iota(), iota_dimension=2\n i = s32[] parameter(1)\n"
        " b = f32[1,96,64,130,1] broadcast(p), dimensions={1,2,3}\n"
        " t = f32[1,96,64,130,1] tan(b)\n z = f32[] constant(0)\n"
        " d = f32[1,96,64,130,1] dynamic-update-slice(t, u, i, i, i, i, i)\n"
        " ROOT r = f32[96,130,1] reduce(d, z), dimensions={0,2}, to_apply=add\n}"
    )
    assert largest_intermediate(text) < 4 * 4 * 96 * 64 * 256


def test_a_gather_without_indices_pads_nothing() -> None:
    text = (
        "HloModule m\nENTRY main {\n v = f32[64,33,256] iota(), iota_dimension=0\n"
        " i = u32[3,8,0] parameter(0)\n ROOT g = f32[3,63,8] gather(v, i), offset_dims={1},"
        " collapsed_slice_dims={1,2}, start_index_map={}, index_vector_dim=2,"
        " slice_sizes={63,1,1}\n}"
    )
    assert largest_intermediate(text) < 2 * 4 * 64 * 40 * 256


@pytest.mark.parametrize("machine", ["numpy", "llvm"])
def test_small_products_in_lanes_on_the_machines(machine: str) -> None:
    text = (
        "HloModule m\nENTRY main {\n p = f32[300,3,3] parameter(0)\n q = f32[300,3,3] parameter(1)\n"
        " a = f32[300,3,3] dot(p, q), lhs_batch_dims={0}, rhs_batch_dims={0},"
        " lhs_contracting_dims={2}, rhs_contracting_dims={1}\n s = f32[300,3,3] sine(a)\n"
        " ROOT b = f32[300,3,3] dot(s, q), lhs_batch_dims={0}, rhs_batch_dims={0},"
        " lhs_contracting_dims={1}, rhs_contracting_dims={2}\n}"
    )
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=(300, 3, 3)).astype(np.float32) for _ in range(2)]
    run = check_text(text, inputs, machine=machine)
    assert not any("dot" in note for note in run.notes)


def test_costs_follow_tiles() -> None:
    assert vregs((1000, 8, 3)) == 1000
    assert vregs((3, 8, 1000)) == 24
    assert vregs((1024,)) == 1
    shape = ArrayShape(parse_module(LOOP).entry.parameters[0].array.dtype, (128, 64, 128))
    costs = OrderCosts.of(CHIP)
    same, swapped = reorder_cycles(shape, (0, 1, 2), (1, 0, 2), costs), (0, 2, 1)
    assert same < reorder_cycles(shape, (0, 1, 2), swapped, costs)
    assert reorder_cycles(shape, (0, 1, 2), swapped, costs) < reorder_cycles(
        shape, (0, 1, 2), (2, 0, 1), costs
    )


def test_arrays_that_a_move_has_settled_do_not_hide_others() -> None:
    """A hundred arrays of one region are one move; those of another region are still looked at."""
    chain = "\n".join(
        f"  x{n + 1} = f32[4096,512,3] {'sine' if n % 9 == 0 else 'negate'}(x{n})"
        for n in range(99)
    )
    text = f"""HloModule m
ENTRY e {{
  x0 = f32[4096,512,3] parameter(0)
{chain}
  t = f32[32,3] parameter(1)
  i = s32[65536] parameter(2)
  g = f32[65536,3] gather(t, i), offset_dims={{1}}, collapsed_slice_dims={{0}},
    start_index_map={{0}}, index_vector_dim=1, slice_sizes={{1,3}}
  s = f32[65536,3] sine(g)
  ROOT r = (f32[4096,512,3], f32[65536,3]) tuple(x99, s)
}}
"""
    plan = OrderPlan(parse_module(text, "test.hlo"), CHIP)
    assert plan.improve()
    found = {i.name: plan.order(i) for i in plan.module.entry if isinstance(i.shape, ArrayShape)}
    assert found["x50"][-1] != 2
    assert found["g"] == (1, 0)


def test_arrays_on_both_sides_of_a_reshape_are_turned_together() -> None:
    """Updates of a scatter that were made in dimensions of their own: either alone would be a loss."""
    text = f"""HloModule m
{ADD}ENTRY e {{
  x = f32[8192,32] parameter(0)
  y = f32[8192,20,32] parameter(1)
  i = s32[163840] parameter(2)
  b = f32[8192,20,32] broadcast(x), dimensions={{0,2}}
  s = f32[8192,20,32] subtract(b, y)
  q = f32[8192,20,32] multiply(s, s)
  z = f32[] constant(0)
  d = f32[8192,20] reduce(q, z), dimensions={{2}}, to_apply=add
  r = f32[8192,20] sqrt(d)
  w = f32[8192,20,32] broadcast(r), dimensions={{0,1}}
  g = f32[8192,20,32] divide(s, w)
  u = f32[163840,32] reshape(g)
  o = f32[20000,32] broadcast(z), dimensions={{}}
  sums = f32[20000,32] scatter(o, i, u), update_window_dims={{1}}, inserted_window_dims={{0}},
    scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=add
  ROOT t = f32[20000,32] sine(sums)
}}
"""
    plan = OrderPlan(parse_module(text, "test.hlo"), CHIP)
    assert plan.improve()
    found = {i.name: plan.order(i) for i in plan.module.entry if isinstance(i.shape, ArrayShape)}
    assert found["g"][-1] == 0
    assert found["u"] == (1, 0)
