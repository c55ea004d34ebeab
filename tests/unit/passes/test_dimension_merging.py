"""Operations on arrays of many dimensions give the same with few."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.hlo.evaluator import evaluate
from compiler.hlo.ir import HloModule
from compiler.hlo.parser import parse_module
from compiler.hlo.shape import ArrayShape
from compiler.hlo.verifier import verify
from compiler.passes.pipeline import run_pipeline
from tpu_sim.isa.chips import load_chip

DIMS = (2, 3, 2, 1, 3, 2, 2, 2)
D = ",".join(map(str, DIMS))
BOX = "[0:2], [0:3], [0:2], [0:1], [1:3], [0:2], [0:2], [0:2]"
STRIDED = "[0:2], [0:3], [0:2], [0:1], [0:3:2], [0:2], [0:2], [1:2]"
MOVED = "3,2,2,2,2,3,1,2"
FORMS = {
    "transpose": f"ROOT r = f32[{MOVED}] transpose(t), dimensions={{4,5,6,7,0,1,3,2}}",
    "unsorted": "ROOT r = f32[2,2,2,3,1,2,3,2] transpose(t), dimensions={7,6,5,4,3,2,1,0}",
    "compare": f"c = pred[{D}] compare(t, x), direction=LT\n ROOT r = f32[{D}] select(c, t, x)",
    "clamp": f"ROOT r = f32[{D}] clamp(zero, t, one)",
    "slice": f"ROOT r = f32[2,3,2,1,2,2,2,2] slice(t), slice={{{BOX}}}",
    "strided": f"ROOT r = f32[2,3,2,1,2,2,2,1] slice(t), slice={{{STRIDED}}}",
    "pad": "ROOT r = f32[2,3,5,1,3,2,2,2] pad(t, one), padding=0_0x0_0x1_2x0_0x0_0x0_0x0_0x0_0",
    "dilated": "ROOT r = f32[2,3,2,1,3,3,2,3] pad(t, one), padding=0_0x0_0x0_0x0_0x0_0x0_0_1x0_0x1_0",
    "cut": "ROOT r = f32[2,3,1,1,3,2,2,2] pad(t, one), padding=0_0x0_0x-1_0x0_0x0_0x0_0x0_0x0_0",
    "concatenate": "ROOT r = f32[2,3,2,1,6,2,2,2] concatenate(t, x), dimensions={4}",
    "first": "ROOT r = f32[4,3,2,1,3,2,2,2] concatenate(t, x), dimensions={0}",
    "reverse": f"ROOT r = f32[{D}] reverse(t), dimensions={{1,2,6}}",
    "reduce": "ROOT r = f32[2,3,2,2] reduce(t, zero), dimensions={2,3,4,7}, to_apply=add",
    "sum": "ROOT r = f32[] reduce(t, zero), dimensions={0,1,2,3,4,5,6,7}, to_apply=add",
    "reshape": "ROOT r = f32[3,2,2,1,3,2,2,1,2] reshape(t)",
    "flat": "ROOT r = f32[6,48] reshape(t)",
    "scalar": "b = f32[1,1,1,1,1,1,1,1] slice(t), "
    "slice={[0:1],[0:1],[0:1],[0:1],[0:1],[0:1],[0:1],[0:1]}\n ROOT r = f32[] reshape(b)",
    "broadcast": f"b = f32[{D}] broadcast(v), dimensions={{1,2}}\n ROOT r = f32[{D}] add(b, t)",
    "iota": f"i = s32[{D}] iota(), iota_dimension=4\n f = f32[{D}] convert(i)\n"
    f" ROOT r = f32[{D}] add(f, t)",
    "box": f"ROOT r = f32[2,3,2,1,2,2,2,2] dynamic-slice(t, {','.join(['k'] * 8)}), "
    "dynamic_slice_sizes={2,3,2,1,2,2,2,2}",
    "fixed box": f"ROOT r = f32[1,3,2,1,3,2,2,2] dynamic-slice(t, {','.join(['five'] * 8)}), "
    "dynamic_slice_sizes={1,3,2,1,3,2,2,2}",
    "update": f"u = f32[2,3,2,1,1,2,2,2] slice(x), slice={{{BOX.replace('1:3', '1:2')}}}\n"
    f" ROOT r = f32[{D}] dynamic-update-slice(t, u, {','.join(['k'] * 8)})",
    "dot": "ROOT r = f32[2,3,1,3,2,2,4] dot(t, s), lhs_contracting_dims={2,7}, "
    "rhs_contracting_dims={1,2}",
    "inner": "ROOT r = f32[2,2] dot(t, x), lhs_contracting_dims={1,2,3,4,5,6,7}, "
    "rhs_contracting_dims={1,2,3,4,5,6,7}",
    "batches": "ROOT r = f32[2,3,2,3,3] dot(t, x), lhs_batch_dims={0,1,5}, "
    "rhs_batch_dims={0,1,5}, lhs_contracting_dims={3,2,7,6}, rhs_contracting_dims={3,2,7,6}",
    "pairs": "ROOT r = f32[3,3] dot(t, x), lhs_contracting_dims={7,6,5,4,3,2,0}, "
    "rhs_contracting_dims={7,6,5,4,3,2,0}",
    "several": f"z = (f32[{D}], f32[{D}]) tuple(t, x)\n"
    f" ROOT r = f32[{D}] get-tuple-element(z), index=0",
}
_APART = ("unsorted", "scalar")
"""Of which no dimensions stay neighbours."""


def _text(form: str) -> str:
    return f"""HloModule m
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}}
ENTRY e {{
  x = f32[{D}] parameter(0)
  y = f32[2,12,12] parameter(1)
  s = f32[4,2,2] parameter(2)
  k = s32[] parameter(3)
  v = f32[3,2] parameter(4)
  zero = f32[] constant(0)
  one = f32[] constant(1)
  five = s32[] constant(5)
  w = f32[{D}] reshape(y)
  t = f32[{D}] multiply(x, w)
  {FORMS[form]}
}}
"""


def _merged(text: str) -> HloModule:
    module = parse_module(text)
    run_pipeline(module, load_chip("v5e"), passes=("dimension-merging", "dce"))
    verify(module)
    return module


@pytest.mark.parametrize("form", FORMS)
def test_the_same_with_few_dimensions(form: str) -> None:
    """Small integers, so that sums are exact in any order."""
    rng = np.random.default_rng(4)
    arrays = [
        rng.integers(-3, 4, dims).astype(np.float32) for dims in (DIMS, (2, 12, 12), (4, 2, 2))
    ]
    inputs = [*arrays, np.array(-3, np.int32), rng.integers(-3, 4, (3, 2)).astype(np.float32)]
    text = _text(form)
    module = _merged(text)
    (want,), (got,) = evaluate(parse_module(text), inputs), evaluate(module, inputs)
    np.testing.assert_array_equal(got, want)
    deep = [
        i
        for i in module.entry
        if isinstance(i.shape, ArrayShape)
        and i.array.rank > 6
        and i.opcode not in ("reshape", "parameter", "get-tuple-element")
    ]
    assert not deep or form in _APART, [i.name for i in deep]


def test_what_has_few_dimensions_stays() -> None:
    text = """HloModule m
ENTRY e {
  x = f32[2,3,4,5,6,7] parameter(0)
  ROOT t = f32[2,3,5,4,6,7] transpose(x), dimensions={0,1,3,2,4,5}
}
"""
    (instr,) = [i for i in _merged(text).entry if i.opcode == "transpose"]
    assert instr.array.rank == 6
