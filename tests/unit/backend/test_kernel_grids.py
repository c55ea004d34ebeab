"""Kernels with many grid steps give what one step gives: windows, double buffers, partial blocks.

All run on the NumPy machine with its checks: a DMA race or a read of unwritten VMEM fails.
"""

from __future__ import annotations

import pytest

import compiler.analysis.block_shapes as block_shapes
import compiler.analysis.iteration_space as iteration_space
from tests.support.run_hlo import ADD, MAX, check_text, normal, small_blocks

ELEMENTWISE = """HloModule m
ENTRY %e (a: f32[40,300], b: f32[300]) -> (f32[40,300], bf16[40,300]) {
  %a = f32[40,300] parameter(0)
  %b = f32[300] parameter(1)
  %c = f32[40,300] broadcast(%b), dimensions={1}
  %d = f32[40,300] multiply(%a, %c)
  %h = bf16[40,300] convert(%d)
  ROOT %t = (f32[40,300], bf16[40,300]) tuple(%d, %h)
}
"""
TRANSPOSE = """HloModule m
ENTRY %e (a: f32[5,40,300]) -> f32[300,5,40] {
  %a = f32[5,40,300] parameter(0)
  ROOT %t = f32[300,5,40] transpose(%a), dimensions={2,0,1}
}
"""
SOFTMAX = f"""HloModule m
{ADD}{MAX}
ENTRY %e (a: f32[200,300]) -> (f32[200,300], f32[200]) {{
  %a = f32[200,300] parameter(0)
  %low = f32[] constant(-inf)
  %zero = f32[] constant(0)
  %m = f32[200] reduce(%a, %low), dimensions={{1}}, to_apply=%max_f32
  %mb = f32[200,300] broadcast(%m), dimensions={{0}}
  %s = f32[200,300] subtract(%a, %mb)
  %x = f32[200,300] exponential(%s)
  %n = f32[200] reduce(%x, %zero), dimensions={{1}}, to_apply=%add_f32
  %nb = f32[200,300] broadcast(%n), dimensions={{0}}
  %d = f32[200,300] divide(%x, %nb)
  ROOT %t = (f32[200,300], f32[200]) tuple(%d, %n)
}}
"""
PAD = """HloModule m
ENTRY %e (a: f32[40,300]) -> f32[46,500] {
  %a = f32[40,300] parameter(0)
  %z = f32[] constant(7)
  ROOT %d = f32[46,500] pad(%a, %z), padding=2_4x150_50
}
"""


def reduction(dims: str, result: str) -> str:
    return f"""HloModule m
{ADD}
ENTRY %e (a: f32[5,40,300]) -> f32[{result}] {{
  %a = f32[5,40,300] parameter(0)
  %zero = f32[] constant(0)
  %s = f32[5,40,300] multiply(%a, %a)
  ROOT %r = f32[{result}] reduce(%s, %zero), dimensions={{{dims}}}, to_apply=%add_f32
}}
"""


@pytest.mark.parametrize("tiles", [1, 3, 16])
def test_elementwise_in_blocks(tiles: int) -> None:
    with small_blocks(tiles, width=2):
        run = check_text(ELEMENTWISE, [normal(0, 40, 300), normal(1, 300)])
    assert "grid 1x1" not in run.notes[0]


@pytest.mark.parametrize("tiles", [1, 7])
def test_a_transpose_reads_windows_that_move_otherwise_than_its_result(tiles: int) -> None:
    with small_blocks(tiles):
        check_text(TRANSPOSE, [normal(0, 5, 40, 300)])


@pytest.mark.parametrize("tiles", [3, 40])
def test_a_last_block_may_overlap_the_one_before(tiles: int) -> None:
    with small_blocks(tiles):
        check_text(SOFTMAX, [normal(0, 200, 300)])


def test_windows_of_padding_stay_inside_the_operand() -> None:
    with small_blocks(1):
        check_text(PAD, [normal(0, 40, 300)])


@pytest.mark.parametrize(
    ("dims", "result"),
    [("1", "5,300"), ("0,2", "40"), ("0,1,2", ""), ("2", "5,40"), ("0", "40,300")],
)
def test_a_reduction_accumulates_over_grid_steps(dims: str, result: str) -> None:
    with small_blocks(1):
        check_text(reduction(dims, result), [normal(0, 5, 40, 300)])


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_dot_cut_along_k_accumulates(
    monkeypatch: pytest.MonkeyPatch, dtype: str, transposed: bool
) -> None:
    monkeypatch.setattr(iteration_space, "_LONG_DEPTH", 256)
    monkeypatch.setattr(block_shapes, "_DEPTH_LIMITS", (1,))
    rhs = "130,500" if transposed else "500,130"
    text = f"""HloModule m
ENTRY %e (a: {dtype}[24,500], b: {dtype}[{rhs}], c: f32[24,130]) -> f32[24,130] {{
  %a = {dtype}[24,500] parameter(0)
  %b = {dtype}[{rhs}] parameter(1)
  %c = f32[24,130] parameter(2)
  %d = f32[24,130] dot(%a, %b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{{int(transposed)}}}
  ROOT %r = f32[24,130] add(%d, %c)
}}
"""
    kind = "bfloat16" if dtype == "bf16" else "float32"
    dims = (130, 500) if transposed else (500, 130)
    inputs = [normal(0, 24, 500, dtype=kind), normal(1, *dims, dtype=kind), normal(2, 24, 130)]
    run = check_text(text, inputs, precision="default")
    assert run.notes[0].endswith("x4"), "four blocks of K"


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("depth", [530, 640])
def test_a_last_block_of_k_may_end_after_it(
    monkeypatch: pytest.MonkeyPatch, dtype: str, transposed: bool, depth: int
) -> None:
    """Five tiles of K, a prime, in blocks of three: what the last one has beyond K adds nothing."""
    monkeypatch.setattr(iteration_space, "_LONG_DEPTH", 256)
    monkeypatch.setattr(block_shapes, "_DEPTH_LIMITS", (3,))
    dims = (130, depth) if transposed else (depth, 130)
    text = f"""HloModule m
ENTRY %e (a: {dtype}[24,{depth}], b: {dtype}[{dims[0]},{dims[1]}]) -> f32[24,130] {{
  %a = {dtype}[24,{depth}] parameter(0)
  %b = {dtype}[{dims[0]},{dims[1]}] parameter(1)
  ROOT %d = f32[24,130] dot(%a, %b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{{int(transposed)}}}
}}
"""
    kind = "bfloat16" if dtype == "bf16" else "float32"
    inputs = [normal(0, 24, depth, dtype=kind), normal(1, *dims, dtype=kind)]
    inputs[0][1, -1] = float("inf")
    run = check_text(text, inputs, precision="default")
    assert run.notes[0].endswith("x2"), "two blocks of K"
