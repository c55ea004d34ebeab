"""Buffers: what shares memory, what must not, and what happens when there is too little."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compiler.analysis.buffer_assignment import BufferAssignment, assign_buffers
from compiler.analysis.buffer_check import check_buffers
from compiler.analysis.window_planner import WindowPlanner
from compiler.diagnostics import ResourceExhaustedError, VerifyError
from compiler.hlo.ir import HloModule
from compiler.hlo.parser import parse_module
from compiler.passes.pipeline import PIPELINE, run_pipeline
from tpu_sim.isa.chips import load_chip
from tpu_sim.isa.program import SMEM

CHIP = load_chip("v5e")


LOOP = """HloModule m
cond {
  p = (s32[], f32[8,128], f32[8,128]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(17)
  ROOT c = pred[] compare(i, n), direction=LT
}
body {
  p = (s32[], f32[8,128], f32[8,128]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[8,128] get-tuple-element(p), index=1
  y = f32[8,128] get-tuple-element(p), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT t = (s32[], f32[8,128], f32[8,128]) tuple(j, y, x)
}
ENTRY main {
  i = s32[] constant(0)
  x = f32[8,128] parameter(0)
  y = f32[8,128] parameter(1)
  t = (s32[], f32[8,128], f32[8,128]) tuple(i, x, y)
  w = (s32[], f32[8,128], f32[8,128]) while(t), condition=cond, body=body
  a = f32[8,128] get-tuple-element(w), index=1
  b = f32[8,128] get-tuple-element(w), index=2
  ROOT r = (f32[8,128], f32[8,128]) tuple(a, b)
}
"""

UPDATE = """HloModule m, input_output_alias={{ {{}}: (0, {{}}, may-alias) }}
ENTRY main {{
  x = f32[64,128] parameter(0)
  u = f32[8,128] parameter(1)
  i = s32[] parameter(2)
  z = s32[] constant(0)
  {extra}
  ROOT d = f32[64,128] dynamic-update-slice(x, {update}, i, z)
}}
"""


def _compiled(text: str, names: tuple[str, ...] = PIPELINE) -> tuple[HloModule, BufferAssignment]:
    module = parse_module(text)
    run_pipeline(module, CHIP, passes=names)
    return module, assign_buffers(module, CHIP)


def test_loop_state_is_one_buffer_and_its_counter_is_in_smem() -> None:
    module, buffers = _compiled(LOOP)
    loop = next(i for i in module.entry if i.opcode == "while")
    body = module.computations["body"]
    for leaf in range(3):
        place = buffers.allocation(loop, leaf)
        assert place is buffers.allocation(loop.operands[0], leaf)
        assert place is buffers.allocation(body.parameters[0], leaf)
        assert place is buffers.allocation(body.root_instruction, leaf)
    assert buffers.allocation(loop, 0).space == SMEM
    check_buffers(module, buffers, WindowPlanner(CHIP))


def test_without_copies_a_swap_would_clobber() -> None:
    names = tuple(n for n in PIPELINE if n != "copy-insertion")
    module, buffers = _compiled(LOOP, names)
    with pytest.raises(VerifyError, match=r"B1"):
        check_buffers(module, buffers, WindowPlanner(CHIP))


def test_parameters_come_first_and_results_are_elsewhere() -> None:
    module, buffers = _compiled(LOOP)
    parameters = [buffers.allocation(p) for p in module.entry.parameters]
    assert [p.offset for p in parameters] == [0, 4096]
    assert [p.parameter for p in parameters] == [(0, 0), (1, 0)]
    root = module.entry.root_instruction
    results = [buffers.allocation(root, leaf) for leaf in range(2)]
    assert [r.outputs for r in results] == [(0,), (1,)]
    assert all(r.parameter is None for r in results)


def test_a_donated_parameter_is_updated_in_place() -> None:
    module, buffers = _compiled(UPDATE.format(extra="", update="u"))
    place = buffers.allocation(module.entry.root_instruction)
    assert place.parameter == (0, 0)
    assert place.outputs == (0,)
    arrays = [i for i in module.entry if i.opcode == "copy" and i.array.dims]
    assert arrays == []


def test_a_donated_parameter_read_by_the_update_is_still_safe() -> None:
    extra = "s = f32[8,128] slice(x), slice={[8:16], [0:128]}"
    module, buffers = _compiled(UPDATE.format(extra=extra, update="s"))
    check_buffers(module, buffers, WindowPlanner(CHIP))
    assert buffers.allocation(module.entry.root_instruction).parameter == (0, 0)


def test_running_out_names_the_largest_buffers_and_their_padding() -> None:
    text = """HloModule big
    ENTRY main {
      x = f32[100000,64] parameter(0)
      ROOT e = f32[100000,64] exponential(x)
    }
    """
    module = parse_module(text)
    run_pipeline(module, CHIP)
    with pytest.raises(ResourceExhaustedError) as caught:
        assign_buffers(module, replace(CHIP, hbm_bytes=1 << 26))
    message = str(caught.value)
    assert message.startswith("RESOURCE_EXHAUSTED: big needs 102,400,000 bytes")
    assert "51,200,000 bytes (25,600,000 padding)  %x f32[100000,64]" in message


def test_a_conditional_writes_one_result_whatever_branch_runs() -> None:
    text = """HloModule m
    yes {
      p = f32[8,128] parameter(0)
      ROOT n = f32[8,128] negate(p)
    }
    no {
      ROOT q = f32[8,128] parameter(0)
    }
    ENTRY main {
      c = pred[] parameter(0)
      x = f32[8,128] parameter(1)
      r = f32[8,128] conditional(c, x, x), true_computation=yes, false_computation=no
      ROOT s = f32[8,128] add(r, x)
    }
    """
    module, buffers = _compiled(text)
    check_buffers(module, buffers, WindowPlanner(CHIP))
    call = next(i for i in module.entry if i.opcode == "conditional")
    assert buffers.allocation(call).parameter is None
