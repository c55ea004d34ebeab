"""Sorts of which only the first are read, and rows of products that are searched, against the evaluator."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from compiler.hlo.parser import parse_module
from compiler.passes.context import PassContext
from compiler.passes.expanders.custom_call_expander import expand_custom_calls
from tests.support.against_evaluator import check
from tpu_sim.isa.chips import load_chip

SORT = """HloModule m
before {
  a = TYPE[] parameter(0)
  b = TYPE[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=DIRECTION
}
ENTRY main {
  x = TYPE[24,700] parameter(0)
  place = s32[24,700] iota(), iota_dimension=1
  sorted = (TYPE[24,700], s32[24,700]) sort(x, place), dimensions={1}, is_stable=true, to_apply=before
  values = TYPE[24,700] get-tuple-element(sorted), index=0
  places = s32[24,700] get-tuple-element(sorted), index=1
  best = TYPE[24,4] slice(values), slice={[0:24], [0:4]}
  where = s32[24,3] slice(places), slice={[0:24], [0:3]}
  ROOT r = (TYPE[24,4], s32[24,3]) tuple(best, where)
}
"""

SEARCH = """HloModule m
ENTRY main {
  a = f32[64,32] parameter(0)
  b = f32[SIZE,32] parameter(1)
  bias = f32[SIZE] parameter(2)
  each = f32[64] parameter(3)
  dot = f32[64,SIZE] dot(a, RIGHT), lhs_contracting_dims={1}, rhs_contracting_dims={CONTRACTED}
  wide = f32[64,SIZE] broadcast(bias), dimensions={1}
  tall = f32[64,SIZE] broadcast(each), dimensions={0}
  moved = f32[64,SIZE] subtract(wide, dot)
  scaled = f32[64,SIZE] multiply(moved, tall)
  ROOT found = (f32[64,12], s32[64,12]) topk(scaled), k=12, largest=true
}
"""


def _counts(text: str) -> list[str]:
    module = parse_module(text)
    expand_custom_calls(module, PassContext(chip=load_chip("v5e")))
    return [i.opcode for i in module.entry]


@pytest.mark.parametrize("direction", ["GT", "LT"])
@pytest.mark.parametrize("kind", ["f32", "bf16", "s32", "u32", "u8"])
def test_values_and_places_of_the_first(kind: str, direction: str) -> None:
    """Numbers repeat, so that places decide."""
    total = ", type=TOTALORDER" if kind in ("f32", "bf16") else ""
    text = SORT.replace("TYPE", kind).replace("DIRECTION", direction + total)
    assert "topk" in _counts(text) and "sort" not in _counts(text)
    numbers = np.random.default_rng(2).integers(0, 99, (24, 700))
    dtypes = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "s32": np.int32, "u32": np.uint32}
    x = numbers.astype(dtypes.get(kind, np.uint8))
    if kind in ("f32", "bf16"):
        x[3, ::5], x[4, 7], x[5] = np.nan, -np.inf, -0.0
        x[5, ::2] = 0.0
    check(text, [x])


def test_more_than_half_is_sorted() -> None:
    text = SORT.replace("TYPE", "s32").replace("DIRECTION", "LT").replace("[0:3]", "[0:400]")
    assert "sort" in _counts(text.replace("[24,3]", "[24,400]"))


@pytest.mark.parametrize(("size", "is_turned"), [(16300, False), (16384, True)])
def test_rows_of_products_are_made_in_groups(size: int, *, is_turned: bool) -> None:
    right = "b.T" if is_turned else "b"
    text = SEARCH.replace("RIGHT", right).replace("CONTRACTED", "0" if is_turned else "1")
    turned = f"  b.T = f32[32,{size}] transpose(b), dimensions={{1,0}}\n"
    text = text.replace("  dot =", turned + "  dot =" if is_turned else "  dot =")
    text = text.replace("SIZE", str(size))
    module = parse_module(text)
    expand_custom_calls(module, PassContext(chip=load_chip("v5e")))
    assert (128, 64, 128) in [i.array.dims for i in module.entry if i.opcode == "dot"]
    random = np.random.default_rng(3)
    args = [random.integers(-4, 5, s) for s in ((64, 32), (size, 32), (size,), (64,))]
    check(text, [a.astype(np.float32) for a in args])
