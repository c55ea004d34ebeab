"""Products of many rows and few features: the same values whichever dimension lies along the lanes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tpuc
from compiler.hlo.evaluator import evaluate
from compiler.hlo.parser import parse_module
from compiler.hlo.verifier import verify
from compiler.passes.context import PassContext
from compiler.passes.dimension_order.dots import is_row_dot
from compiler.passes.dimension_order.planner import OrderPlan
from compiler.passes.dimension_order.rewriter import OrderRewriter
from compiler.passes.dot_canonicalizer import canonicalize_dots, is_canonical, merge_rows
from tests.support.run_hlo import check_text, normal
from tpu_sim.isa.chips import load_chip

KEPT = """HloModule m
ENTRY main {
  x = f32[4,3,96,5] parameter(0)
  w = f32[5,7] parameter(1)
  s = f32[4,3,96,5] negate(x)
  d = f32[4,3,96,7] dot(s, w), lhs_contracting_dims={3}, rhs_contracting_dims={0}
  ROOT r = f32[4,3,96,7] negate(d)
}
"""
SWAPPED = """HloModule m
ENTRY main {
  x = f32[4,3,96,5] parameter(0)
  w = f32[7,5] parameter(1)
  s = f32[4,3,96,5] negate(x)
  d = f32[7,4,3,96] dot(w, s), lhs_contracting_dims={1}, rhs_contracting_dims={3}
  ROOT r = f32[7,4,3,96] negate(d)
}
"""
SUMMED = """HloModule m
ENTRY main {
  x = f32[4,3,96,5] parameter(0)
  y = f32[4,3,96,7] parameter(1)
  s = f32[4,3,96,5] negate(x)
  t = f32[4,3,96,7] negate(y)
  ROOT d = f32[5,7] dot(s, t), lhs_contracting_dims={0,1,2}, rhs_contracting_dims={0,1,2}
}
"""


@pytest.mark.parametrize("text", [KEPT, SWAPPED, SUMMED], ids=["kept", "swapped", "summed"])
def test_any_orders_mean_the_same(text: str) -> None:
    wanted_module = parse_module(text)
    rng = np.random.default_rng(3)
    inputs = [
        rng.integers(-3, 4, p.array.dims).astype("float32") for p in wanted_module.entry.parameters
    ]
    (wanted,) = evaluate(wanted_module, inputs, "highest")
    orders = list(itertools.permutations(range(4)))
    for first, second in zip(orders, orders[7:] + orders[:7], strict=True):
        module = parse_module(text)
        plan = OrderPlan(module, load_chip("v5e"))
        for instr in module.entry:
            if instr.opcode == "negate":
                order = second if instr.name in ("r", "t") else first
                plan.orders[plan.arrays.home(instr)] = order
            if instr.opcode == "dot":
                assert is_row_dot(instr)
                if instr.array.rank == 4:
                    plan.orders[plan.arrays.home(instr)] = second
        OrderRewriter(plan).run()
        verify(module)
        merge_rows(module, PassContext(load_chip("v5e")))
        verify(module)
        assert all(is_canonical(i) for i in module.entry if i.opcode == "dot")
        (found,) = evaluate(module, inputs, "highest")
        np.testing.assert_array_equal(found, wanted)


def test_rows_of_few_features_are_merged_late() -> None:
    context = PassContext(load_chip("v5e"))
    module = parse_module(KEPT.replace("96", "128"))
    assert not canonicalize_dots(module, context)
    assert merge_rows(module, context)
    (dot,) = (i for i in module.entry if i.opcode == "dot")
    assert dot.array.dims == (4 * 3 * 128, 7)
    wide = parse_module(KEPT.replace(",5]", ",256]").replace("[5,", "[256,").replace("7]", "256]"))
    assert canonicalize_dots(wide, PassContext(load_chip("v5e")))


CONVOLUTION = """HloModule m
ENTRY main {{
  x = f32[{image}] parameter(0)
  k = f32[{kernel}] parameter(1)
  s = f32[{image}] abs(x)
  c = f32[{result}] convolution(s, k), window={{{window}}}, dim_labels={labels}
  ROOT r = f32[{result}] abs(c)
}}
"""
FORWARD, GRADIENT = "b01f_01io->b01f", "f01b_i01o->01bf"


@pytest.mark.parametrize(
    "case",
    [
        ("72,9,7,3", "3,3,3,5", "72,9,7,5", "size=3x3 pad=1_1x1_1", FORWARD),
        ("65,8,9,16", "3,2,16,24", "65,4,5,24", "size=3x2 stride=2x2 pad=1_0x1_0", FORWARD),
        ("128,5,6,40", "3,3,40,33", "128,5,6,33", "size=3x3 pad=1_1x1_1", FORWARD),
        ("70,4,5,12", "1,1,12,20", "70,4,5,20", "size=1x1", FORWARD),
        ("66,6,5,9", "66,6,5,10", "3,3,9,10", "size=6x5 pad=1_1x1_1", GRADIENT),
        ("2,12,100,8", "3,3,8,6", "2,12,100,6", "size=3x3 pad=1_1x1_1", FORWARD),
    ],
    ids=["stem", "strided", "wide", "pointwise", "gradient", "columns"],
)
@pytest.mark.parametrize("precision", ["default", "highest"])
def test_convolutions_of_few_features(case: tuple[str, str, str, str, str], precision: str) -> None:
    image, kernel, result, window, labels = case
    text = CONVOLUTION.format(
        image=image, kernel=kernel, result=result, window=window, labels=labels
    )
    sides = [normal(n, *map(int, dims.split(","))) for n, dims in enumerate((image, kernel))]
    check_text(text, sides, precision, "llvm", 2e-5)


def test_the_batch_fills_the_lanes() -> None:
    text = CONVOLUTION.format(
        image="128,32,32,16",
        kernel="3,3,16,16",
        result="128,32,32,16",
        window="size=3x3 pad=1_1x1_1",
        labels=FORWARD,
    )
    report = tpuc.compile(text, target="v5e").estimate()
    assert report.hbm_bytes < 4 * 128 * 32 * 32 * 16 * 4
    assert report.cycles < 200_000
