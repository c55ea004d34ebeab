"""What is easily forgotten: empty arrays, rank 0, values that pass through, refusals by name."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from compiler.analysis.dot_parts import dot_parts
from compiler.diagnostics import UnsupportedError
from compiler.hlo.parser import parse_module
from tests.support.run_hlo import ADD, check_text, normal


def test_empty_arrays_need_no_kernel() -> None:
    text = """HloModule m
ENTRY %e (x: f32[0,30]) -> f32[0,30] {
  %x = f32[0,30] parameter(0)
  ROOT %y = f32[0,30] multiply(%x, %x)
}
"""
    run = check_text(text, [np.zeros((0, 30), np.float32)])
    assert run.outputs[0].shape == (0, 30)


def test_a_reduction_of_nothing_is_its_initial_value() -> None:
    text = f"""HloModule m
{ADD}
ENTRY %e (x: f32[0,30]) -> f32[30] {{
  %x = f32[0,30] parameter(0)
  %z = f32[] constant(3)
  ROOT %y = f32[30] reduce(%x, %z), dimensions={{0}}, to_apply=%add_f32
}}
"""
    check_text(text, [np.zeros((0, 30), np.float32)], tolerance=0)


def test_results_may_be_parameters_and_repeat() -> None:
    text = """HloModule m
ENTRY %e (x: f32[10,30], y: f32[10,30]) -> (f32[10,30], f32[10,30], f32[10,30]) {
  %x = f32[10,30] parameter(0)
  %y = f32[10,30] parameter(1)
  %n = f32[10,30] negate(%x)
  ROOT %t = (f32[10,30], f32[10,30], f32[10,30]) tuple(%y, %n, %n)
}
"""
    check_text(text, [normal(0, 10, 30), normal(1, 10, 30)], tolerance=0)


def test_a_rank_0_function_that_the_scalar_unit_lacks_runs_on_the_vector_unit() -> None:
    text = """HloModule m
ENTRY %e (a: f32[]) -> (f32[], f32[]) {
  %a = f32[] parameter(0)
  %b = f32[] exponential(%a)
  %c = f32[] add(%b, %a)
  ROOT %t = (f32[], f32[]) tuple(%b, %c)
}
"""
    check_text(text, [np.float32(0.5)], tolerance=1e-6)


def test_a_packed_scalar_is_read_from_hbm() -> None:
    text = """HloModule m
ENTRY %e (a: bf16[], x: f32[40,30]) -> f32[40,30] {
  %a = bf16[] parameter(0)
  %x = f32[40,30] parameter(1)
  %b = f32[] convert(%a)
  %c = f32[40,30] broadcast(%b), dimensions={}
  ROOT %d = f32[40,30] multiply(%c, %x)
}
"""
    check_text(text, [ml_dtypes.bfloat16(1.5), normal(0, 40, 30)], tolerance=0)


@pytest.mark.parametrize("chosen", [True, False])
def test_a_predicated_conditional_on_arrays(chosen: bool) -> None:
    text = """HloModule m
%yes (x: f32[10,30]) -> f32[10,30] {
  %x = f32[10,30] parameter(0)
  ROOT %n = f32[10,30] negate(%x)
}
%no (y: f32[10,30]) -> f32[10,30] {
  %y = f32[10,30] parameter(0)
  ROOT %d = f32[10,30] add(%y, %y)
}
ENTRY %e (p: pred[], x: f32[10,30]) -> f32[10,30] {
  %p = pred[] parameter(0)
  %x = f32[10,30] parameter(1)
  ROOT %c = f32[10,30] conditional(%p, %x, %x), true_computation=%yes, false_computation=%no
}
"""
    check_text(text, [np.bool_(chosen), normal(0, 10, 30)], tolerance=0)


def test_a_loop_may_end_on_what_a_vector_kernel_finds() -> None:
    text = f"""HloModule m
{ADD}
%test (s: (f32[8,128], s32[])) -> pred[] {{
  %s = (f32[8,128], s32[]) parameter(0)
  %x = f32[8,128] get-tuple-element(%s), index=0
  %z = f32[] constant(0)
  %n = f32[] reduce(%x, %z), dimensions={{0,1}}, to_apply=%add_f32
  %l = f32[] constant(100000)
  ROOT %p = pred[] compare(%n, %l), direction=LT
}}
%body (s: (f32[8,128], s32[])) -> (f32[8,128], s32[]) {{
  %s = (f32[8,128], s32[]) parameter(0)
  %x = f32[8,128] get-tuple-element(%s), index=0
  %i = s32[] get-tuple-element(%s), index=1
  %one = s32[] constant(1)
  %j = s32[] add(%i, %one)
  %y = f32[8,128] add(%x, %x)
  ROOT %t = (f32[8,128], s32[]) tuple(%y, %j)
}}
ENTRY %e (x: f32[8,128]) -> (f32[8,128], s32[]) {{
  %x = f32[8,128] parameter(0)
  %z = s32[] constant(0)
  %t = (f32[8,128], s32[]) tuple(%x, %z)
  ROOT %w = (f32[8,128], s32[]) while(%t), condition=%test, body=%body
}}
"""
    run = check_text(text, [np.abs(normal(0, 8, 128))], tolerance=0)
    assert run.outputs[1] > 3


def test_an_integer_dot_is_refused_by_name_and_line() -> None:
    text = """HloModule m
ENTRY %e (x: s32[30,20], y: s32[20,40]) -> s32[30,40] {
  %x = s32[30,20] parameter(0)
  %y = s32[20,40] parameter(1)
  ROOT %d = s32[30,40] dot(%x, %y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
    dot = parse_module(text, "test.hlo").entry.root_instruction
    with pytest.raises(UnsupportedError, match=r"s32 x s32 -> s32 dot.*\n.*test.hlo:5"):
        dot_parts(dot, "default")
