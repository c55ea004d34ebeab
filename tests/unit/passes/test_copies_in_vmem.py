"""State that a loop's trips exchange is copied within VMEM; values are those of the evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.analysis.resident_arrays import Moves, resident_arrays
from compiler.driver import CompileOptions, compile_module
from compiler.hlo.ir import HloInstruction
from compiler.hlo.parser import parse_module
from tests.support.module_checks import inputs_for
from tests.support.run_hlo import expected, normalised_error, run_compiled
from tpu_sim.isa.chips import load_chip

TEXT = """HloModule m
body {
  s = (s32[], TYPE[64,256], TYPE[64,256], s32[64,1]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  x = TYPE[64,256] get-tuple-element(s), index=1
  y = TYPE[64,256] get-tuple-element(s), index=2
  k = s32[64,1] get-tuple-element(s), index=3
  g = TYPE[64,256] gather(x, k), offset_dims={1}, collapsed_slice_dims={0},
    start_index_map={0}, index_vector_dim=1, slice_sizes={1,256}
  n = TYPE[64,256] subtract(y, g)
  ROOT r = (s32[], TYPE[64,256], TYPE[64,256], s32[64,1]) tuple(j, n, x, k)
}
condition {
  s = (s32[], TYPE[64,256], TYPE[64,256], s32[64,1]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  last = s32[] constant(5)
  ROOT c = pred[] compare(i, last), direction=LT
}
ENTRY main {
  p = TYPE[64,256] parameter(0)
  q = TYPE[64,256] parameter(1)
  z = s32[] constant(0)
  k = s32[64,1] parameter(2)
  a = TYPE[64,256] negate(p)
  b = TYPE[64,256] add(q, p)
  state = (s32[], TYPE[64,256], TYPE[64,256], s32[64,1]) tuple(z, a, b, k)
  loop = (s32[], TYPE[64,256], TYPE[64,256], s32[64,1]) while(state), condition=condition, body=body
  u = TYPE[64,256] get-tuple-element(loop), index=1
  v = TYPE[64,256] get-tuple-element(loop), index=2
  ROOT o = TYPE[64,256] add(u, v)
}
"""


@pytest.mark.parametrize("machine", ["numpy", "llvm"])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_exchanged_state_is_copied_within_vmem(machine: str, dtype: str) -> None:
    text = TEXT.replace("TYPE", dtype)
    compiled = compile_module(parse_module(text), load_chip("v5e"), CompileOptions())
    copies = [line for line in compiled.hlo_text().splitlines() if " copy(" in line]
    assert any("S(1)" in line for line in copies)
    inputs = inputs_for(text)
    outputs = run_compiled(compiled, inputs, machine).outputs
    errors = [normalised_error(w, g) for w, g in zip(expected(text, inputs), outputs, strict=True)]
    assert np.max(errors) <= 1e-5


def test_what_a_copy_that_may_go_reads_stays_in_hbm() -> None:
    """Without the copy its operand is in its place, among arrays that lie in HBM."""
    text = """HloModule m
ENTRY main {
  x = f32[64,256]{1,0:T(8,128)} parameter(0)
  a = f32[64,256]{1,0:T(8,128)} negate(x)
  b = f32[64,256]{1,0:T(8,128)} copy(a)
  ROOT c = f32[64,256]{1,0:T(8,128)} add(a, b)
}
"""
    module = parse_module(text)
    copy = next(i for i in module.entry if i.opcode == "copy")

    def found(copies: list[HloInstruction]) -> set[str]:
        def moves(instr: HloInstruction) -> Moves | None:
            return Moves([1 << 20] * (len(instr.operands) + 1))

        arrays = resident_arrays(module, (), moves, copies).arrays
        return {slot[0].name for array in arrays for slot in array.slots}

    assert found([]) == {"a", "b"}
    assert found([copy]) == {"b"}
