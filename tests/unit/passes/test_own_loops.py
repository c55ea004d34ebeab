"""Arrays stay in VMEM beside a loop that is a kernel of its own; values are those of the evaluator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler.backend.loop_kernel import LoopKernel
from compiler.driver import CompileOptions, compile_module
from compiler.hlo.parser import parse_module
from compiler.llo.ir import LloKernel
from tests.support.module_checks import inputs_for
from tests.support.run_hlo import expected, normalised_error, run_compiled
from tpu_sim.isa.chips import load_chip

TEXT = """HloModule m
body {
  s = (s32[], f32[32,128]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  x = f32[32,128] get-tuple-element(s), index=1
  t = f32[32,128] tanh(x)
  n = f32[32,128] add(t, x)
  ROOT r = (s32[], f32[32,128]) tuple(j, n)
}
condition {
  s = (s32[], f32[32,128]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  last = s32[] constant(40)
  ROOT c = pred[] compare(i, last), direction=LT
}
ENTRY main {
  x = f32[32,128] parameter(0)
  y = f32[256,128] parameter(1)
  w = f32[128,128] parameter(2)
  a = f32[256,128] dot(y, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  m = f32[32,128] slice(a), slice={[0:32], [0:128]}
  z = s32[] constant(0)
  init = f32[32,128] add(x, m)
  state = (s32[], f32[32,128]) tuple(z, init)
  loop = (s32[], f32[32,128]) while(state), condition=condition, body=body
  l = f32[32,128] get-tuple-element(loop), index=1
  v = f32[256,128] dot(a, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  q = f32[32,128] slice(v), slice={[64:96], [0:128]}
  ROOT o = f32[32,128] add(l, q)
}
"""
ALONE = (
    TEXT[: TEXT.index("ENTRY")]
    + """ENTRY main {
  x = f32[32,128] parameter(0)
  z = s32[] constant(0)
  state = (s32[], f32[32,128]) tuple(z, x)
  loop = (s32[], f32[32,128]) while(state), condition=condition, body=body
  ROOT l = f32[32,128] get-tuple-element(loop), index=1
}
"""
)


@pytest.mark.parametrize("machine", ["numpy", "llvm"])
def test_what_lives_across_a_loop_stays_beside_it(machine: str) -> None:
    chip = replace(load_chip("v5e"), vmem_bytes=2 << 20)
    options = CompileOptions(precision="highest")
    compiled = compile_module(parse_module(TEXT), chip, options)
    lines = compiled.hlo_text().splitlines()
    loop = next(line for line in lines if " while(" in line)
    assert '"vmem_bytes":' in loop
    assert any("f32[256,128]{1,0:T(8,128)S(1)}" in line for line in lines)
    assert any("loop in VMEM" in (k.note or "") for k in compiled.program.kernels.values())
    inputs = inputs_for(TEXT)
    outputs = run_compiled(compiled, inputs, machine).outputs
    errors = [normalised_error(w, g) for w, g in zip(expected(TEXT, inputs), outputs, strict=True)]
    assert np.max(errors) <= 1e-4


def test_a_loop_is_emitted_again_only_where_its_arrays_have_moved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    emitted: list[str] = []
    emit = LoopKernel.emit

    def counted(kernel: LoopKernel) -> LloKernel:
        emitted.append(kernel.loop.name)
        return emit(kernel)

    monkeypatch.setattr(LoopKernel, "emit", counted)
    compile_module(parse_module(ALONE), load_chip("v5e"))
    assert len(emitted) == 1
    emitted.clear()
    chip = replace(load_chip("v5e"), vmem_bytes=2 << 20)
    compile_module(parse_module(TEXT), chip)
    assert len(emitted) == 2, (
        "what went to VMEM beside the loop made room: its arrays lie elsewhere"
    )
