"""Arrays that a kernel fetches for the next one arrive whole, whatever their shape, type and parts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler.analysis.fusion_body import fusion_body
from compiler.driver import CompiledModule, CompileOptions, compile_module
from compiler.hlo.parser import parse_module
from tests.support.module_checks import inputs_for
from tests.support.run_hlo import run_compiled
from tpu_sim.isa.chips import load_chip

TEXT = """HloModule m
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
ENTRY main {
  x = bf16[128,512] parameter(0)
  y = bf16[512,512] parameter(1)
  w = SHAPE parameter(2)
  z = f32[] constant(0)
  d = f32[128,512] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  s = f32[] reduce(d, z), dimensions={0,1}, to_apply=add
  t = f32[] tanh(s)
  u = TYPE[] convert(t)
  v = SHAPE broadcast(u), dimensions={}
  ROOT r = SHAPE subtract(w, v)
}
"""
SHAPES = (
    "f32[512,512]",
    "f32[8,16384]",
    "f32[333,257]",
    "bf16[1605,130]",
    "bf16[24,10000]",
    "f32[7,130,40]",
    "bf16[5,3,40,256]",
    "f32[100000]",
    "bf16[150000]",
    "s8[1000,300]",
    "s32[5,80,200]",
)


CHIP = replace(load_chip("v5e"), matmul_cycles=256)
"""A product of few rows leaves time, and takes an emulator little."""


def _compiled(text: str, *skip: str) -> CompiledModule:
    return compile_module(parse_module(text), CHIP, CompileOptions(skip=skip))


def _text(shape: str) -> str:
    return TEXT.replace("SHAPE", shape).replace("TYPE", shape.partition("[")[0])


UNEVEN = ("f32[333,257]", "bf16[1605,130]", "f32[7,130,40]", "f32[100000]")
"""Parts of them differ, or come in two transfers."""


@pytest.mark.parametrize(
    ("machine", "shape"), [*(("llvm", s) for s in SHAPES), *(("numpy", s) for s in UNEVEN)]
)
def test_what_is_fetched_arrives(machine: str, shape: str) -> None:
    text = _text(shape)
    compiled = _compiled(text)
    kernels = [i for i in compiled.module.entry if i.opcode == "fusion"]
    carriers = [i for i in kernels if fusion_body(i).carried]
    assert len(carriers) == 1
    inputs = inputs_for(text)
    run = run_compiled(compiled, inputs, machine)
    (wanted,) = run_compiled(_compiled(text, "vmem-prefetch"), inputs, "llvm").outputs
    np.testing.assert_array_equal(run.outputs[0], wanted)
