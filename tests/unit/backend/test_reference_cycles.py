"""A kernel's emitters go when it is made: the cycle collector rests during a compilation."""

from __future__ import annotations

import gc

from compiler.backend.vector.loads import Loader
from compiler.driver import compile_module
from compiler.hlo.parser import parse_module
from tpu_sim.isa.chips import load_chip

TEXT = """HloModule m
ENTRY main {
  a = f32[256,128] parameter(0)
  b = f32[256,384] parameter(1)
  t = f32[128,256] transpose(a), dimensions={1,0}
  ROOT d = f32[128,384] dot(t, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def test_no_loader_outlives_its_kernel() -> None:
    chip = load_chip("v5e")
    gc.collect()
    before = sum(isinstance(item, Loader) for item in gc.get_objects())
    gc.disable()
    try:
        compiled = compile_module(parse_module(TEXT), chip)
        after = sum(isinstance(item, Loader) for item in gc.get_objects())
    finally:
        gc.enable()
    assert compiled.program.kernels
    assert after == before
