"""Every operation has windows, whatever its shape and however small VMEM is.

Large arrays are planned only. Small ones, with a VMEM so small that the same ways out are needed
(fusions cut in parts, loops over parts of a result), are compiled, run and compared. More of both:

    TPUC_SIZED_PROGRAMS=2000 pytest tests/property/test_small_vmem.py
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from compiler.driver import run_passes
from compiler.hlo.parser import parse_module
from tests.support.module_checks import compare, inputs_for
from tests.support.run_hlo import compile_text, expected, run_compiled
from tests.support.sized_programs import sized_program
from tpu_sim.isa.chips import Chip, load_chip

COUNT = int(os.environ.get("TPUC_SIZED_PROGRAMS", "0"))
OR = """or {
  a = pred[] parameter(0)
  b = pred[] parameter(1)
  ROOT c = pred[] or(a, b)
}
"""
ADD = """add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
"""
CASES = {
    "a reshape whose rows begin anywhere": (
        "x = f32[37,1501] parameter(0)\n  ROOT y = f32[1501,37] reshape(x)",
        "in parts, by loops",
    ),
    "rows longer than VMEM": (
        "x = f32[3,40001] parameter(0)\n  ROOT y = f32[40001,3] reshape(x)",
        "in parts, by loops",
    ),
    "a transpose of four dimensions": (
        "x = f32[9,130,10,140] parameter(0)\n"
        "  ROOT y = f32[140,10,9,130] transpose(x), dimensions={3,2,0,1}",
        "in parts, by loops",
    ),
    "sums of rows to a vector of no whole tiles": (
        "x = f32[2100,130] parameter(0)\n  z = f32[] constant(0)\n"
        "  ROOT y = f32[2100] reduce(x, z), dimensions={1}, to_apply=add",
        "in parts, by loops",
    ),
    "a product of many passes over a long K": (
        "x = f32[20,3000] parameter(0)\n  y = f32[3000,130] parameter(1)\n"
        "  ROOT d = f32[20,130] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        "in parts, by loops",
    ),
    "an array times itself": (
        "x = f32[260,260] parameter(0)\n"
        "  ROOT d = f32[260,260] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        "fetched twice",
    ),
    "a sum with its own transpose": (
        "x = f32[260,260] parameter(0)\n  t = f32[260,260] transpose(x), dimensions={1,0}\n"
        "  ROOT y = f32[260,260] add(x, t)",
        "kernels store %t",
    ),
    "rows of a product that are no whole bf16 tiles": (
        "x = f32[1001,267] parameter(0)\n  y = f32[267,128] parameter(1)\n"
        "  d = f32[1001,128] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
        "  ROOT e = f32[1001,128] tanh(d)",
        "kernels store %d",
    ),
    "whether any of many": (
        "x = f32[600,1400] parameter(0)\n  n = f32[] constant(3.5)\n"
        "  m = f32[600,1400] broadcast(n), dimensions={}\n"
        "  p = pred[600,1400] compare(x, m), direction=GT\n  z = pred[] constant(false)\n"
        "  ROOT y = pred[] reduce(p, z), dimensions={0,1}, to_apply=or",
        "in parts, by loops",
    ),
    "an update at a place that is not known": (
        "x = f32[300,700] parameter(0)\n  u = f32[261,505] parameter(1)\n"
        "  i = s32[] parameter(2)\n  j = s32[] parameter(3)\n"
        "  ROOT y = f32[300,700] dynamic-update-slice(x, u, i, j)",
        "all of the result is made",
    ),
    "a computed update of a packed type": (
        "x = bf16[3,300,700] parameter(0)\n  u = bf16[2,261,505] parameter(1)\n"
        "  i = s32[] parameter(2)\n  n = s32[] constant(9)\n  j = s32[] subtract(n, i)\n"
        "  v = bf16[2,261,505] negate(u)\n"
        "  ROOT y = bf16[3,300,700] dynamic-update-slice(x, v, i, j, j)",
        "in parts, by loops",
    ),
    "an update of a long vector": (
        "x = s32[300001] parameter(0)\n  u = s32[200003] parameter(1)\n"
        "  i = s32[] parameter(2)\n  ROOT y = s32[300001] dynamic-update-slice(x, u, i)",
        "all of the result is made",
    ),
    "results with tiles of other sizes": (
        "x = f32[1500,300] parameter(0)\n  z = f32[] constant(0)\n"
        "  e = f32[1500,300] exponential(x)\n"
        "  s = f32[1500] reduce(e, z), dimensions={1}, to_apply=add\n"
        "  b = f32[1500,300] broadcast(s), dimensions={0}\n"
        "  q = f32[1500,300] divide(e, b)\n"
        "  ROOT r = (f32[1500,300], f32[1500]) tuple(q, s)",
        "kernels store",
    ),
}


def small_chip(vmem_bytes: int) -> Chip:
    return replace(load_chip("v5e"), vmem_bytes=vmem_bytes, hbm_bytes=1 << 40)


def check(text: str, chip: Chip, machine: str = "llvm") -> str:
    """Compile for the chip, run, compare; returns what the compiler says it did."""
    inputs = inputs_for(text)
    compiled = compile_text(text, chip=chip)
    run = run_compiled(compiled, inputs, machine)
    for want, got in zip(expected(text, inputs), run.outputs, strict=True):
        compare(want, got)
    return compiled.program.metadata.get("remarks", "")


@pytest.mark.parametrize("name", CASES)
def test_ways_out_keep_values(name: str) -> None:
    body, remark = CASES[name]
    text = f"HloModule m\n{ADD}{OR}ENTRY main {{\n  {body}\n}}\n"
    said = check(text, small_chip(160 << 10))
    assert remark in said, said


@pytest.mark.parametrize("seed", range(1000, 1000 + (COUNT or 24)))
def test_small_programs_run_right_on_a_small_vmem(seed: int) -> None:
    check(sized_program(seed, 2e4, 2e5), small_chip(192 << 10))


@pytest.mark.parametrize("seed", range(COUNT or 24))
def test_large_programs_have_windows(seed: int) -> None:
    text = sized_program(seed, 16e6, 1e9)
    for vmem in (1, 4, 16, 128):
        run_passes(parse_module(text), small_chip(vmem << 20))
