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


STATE = """HloModule m
inner_body {
  s = (s32[], f32[64,128]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  x = f32[64,128] get-tuple-element(s), index=1
  t = f32[64,128] tanh(x)
  ROOT r = (s32[], f32[64,128]) tuple(j, t)
}
inner_condition {
  s = (s32[], f32[64,128]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  last = s32[] constant(30)
  ROOT c = pred[] compare(i, last), direction=LT
}
body {
  s = (s32[], f32[64,128], f32[64,128], f32[128,128]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  zero = s32[] constant(0)
  j = s32[] add(i, one)
  x = f32[64,128] get-tuple-element(s), index=1
  y = f32[64,128] get-tuple-element(s), index=2
  w = f32[128,128] get-tuple-element(s), index=3
  p = f32[64,128] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  st = (s32[], f32[64,128]) tuple(zero, p)
  l = (s32[], f32[64,128]) while(st), condition=inner_condition, body=inner_body
  t = f32[64,128] get-tuple-element(l), index=1
  row = f32[1,128] slice(x), slice={[3:4], [0:128]}
  u = f32[64,128] dynamic-update-slice(y, row, i, zero)
  a = f32[64,128] add(t, u)
  ROOT r = (s32[], f32[64,128], f32[64,128], f32[128,128]) tuple(j, a, u, w)
}
condition {
  s = (s32[], f32[64,128], f32[64,128], f32[128,128]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  last = s32[] constant(40)
  ROOT c = pred[] compare(i, last), direction=LT
}
ENTRY main {
  x = f32[64,128] parameter(0)
  v = f32[128,128] parameter(1)
  z = s32[] constant(0)
  w = f32[128,128] tanh(v)
  a = f32[64,128] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  b = f32[64,128] sine(x)
  state = (s32[], f32[64,128], f32[64,128], f32[128,128]) tuple(z, a, b, w)
  loop = (s32[], f32[64,128], f32[64,128], f32[128,128]) while(state), condition=condition, body=body
  l = f32[64,128] get-tuple-element(loop), index=1
  u = f32[64,128] get-tuple-element(loop), index=2
  q = f32[64,128] dot(l, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT o = f32[64,128] add(q, u)
}
"""


@pytest.mark.parametrize("machine", ["numpy", "llvm"])
def test_the_state_of_a_loop_stays_between_kernels(machine: str) -> None:
    chip, options = load_chip("v5e"), CompileOptions(precision="highest")
    compiled = compile_module(parse_module(STATE), chip, options)
    lines = compiled.hlo_text().splitlines()
    loop = next(line for line in lines if " while(" in line and "%loop" in line)
    assert loop.count("T(8,128)S(1)") == 3
    kernels = compiled.program.kernels.values()
    (kernel,) = (k for k in kernels if "loop in VMEM" in (k.note or ""))
    assert sum(window.kept for window in kernel.windows) == 3
    inputs = inputs_for(STATE)
    moved = compile_module(parse_module(STATE), chip, replace(options, skip=("vmem-residency",)))
    wanted = run_compiled(moved, inputs, machine).outputs
    for want, got in zip(wanted, run_compiled(compiled, inputs, machine).outputs, strict=True):
        assert np.array_equal(want, got)
