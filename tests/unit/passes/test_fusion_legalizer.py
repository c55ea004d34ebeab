"""A dot whose operands cannot be windowed gets them from kernels of their own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tpuc
from compiler.analysis.window_planner import WindowPlanner
from compiler.analysis.window_search import plan_windows
from compiler.diagnostics import UnsupportedError
from compiler.hlo.evaluator import evaluate
from compiler.hlo.ir import HloComputation
from compiler.hlo.parser import parse_module
from compiler.passes.context import PassContext
from compiler.passes.fusion_cuts import Judge
from compiler.passes.fusion_parts import FusionPart
from compiler.passes.pipeline import PASSES, PIPELINE, run_pipeline
from tpu_sim.isa.chips import load_chip

DISPATCH = """HloModule dispatch
ENTRY main {
  m = f32[512,16,128] parameter(0)
  x = f32[512,256] parameter(1)
  t = f32[16,128,512] transpose(m), dimensions={1,2,0}
  r = f32[2048,512] reshape(t)
  ROOT d = f32[2048,256] dot(r, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


@pytest.mark.parametrize("vmem_bytes", (1 << 27, 1 << 20))
def test_values_and_windows_survive_a_small_vmem(vmem_bytes: int) -> None:
    module = parse_module(DISPATCH)
    rng = np.random.default_rng(3)
    args = [rng.standard_normal(p.array.dims).astype(np.float32) for p in module.entry.parameters]
    wanted = evaluate(module, args, "highest")
    chip = replace(load_chip("v5e"), vmem_bytes=vmem_bytes)
    run_pipeline(module, chip)
    fusions = [i for i in module.entry if i.opcode == "fusion"]
    for fusion in fusions:
        plan_windows(fusion, chip)
    assert len(fusions) == (1 if vmem_bytes == 1 << 27 else 2)
    (found,) = evaluate(module, args, "highest")
    np.testing.assert_allclose(found, wanted[0], rtol=1e-5, atol=1e-4)


def test_what_has_a_window_is_left_alone() -> None:
    module = parse_module(DISPATCH)
    run_pipeline(module, load_chip("v5e"))
    assert PASSES["fusion-legalizer"].run(module, PassContext(load_chip("v5e"))) is False
    bodies = [i.attrs["calls"] for i in module.entry if i.opcode == "fusion"]
    (body,) = [b for b in bodies if isinstance(b, HloComputation)]
    assert any(i.opcode == "transpose" for i in body)


@pytest.mark.parametrize("vmem_bytes", (1 << 27, 1 << 24, 1 << 22, 1 << 21, 1 << 19))
def test_whether_there_are_windows_is_known_without_a_search(vmem_bytes: int) -> None:
    module = parse_module(DISPATCH)
    names = PIPELINE[: PIPELINE.index("fusion-legalizer")]
    run_pipeline(module, load_chip("v5e"), passes=names)
    (fusion,) = [i for i in module.entry if i.opcode == "fusion"]
    chip = replace(load_chip("v5e"), vmem_bytes=vmem_bytes)
    try:
        plan_windows(fusion, chip)
        wanted = True
    except UnsupportedError:
        wanted = False
    assert WindowPlanner(chip).has_plan(fusion) is wanted


TURNED_ROWS = """HloModule turned
ENTRY main {
  x = f32[394272,32] parameter(0)
  r = f32[32,111,111,32] reshape(x)
  t = f32[111,111,32,32] transpose(r), dimensions={1,2,0,3}
  z = f32[] constant(0)
  ROOT p = f32[113,113,32,32] pad(t, z), padding=1_1x1_1x0_0x0_0
}
"""
SCAN = """HloModule scan
ENTRY main {
  a = f32[4,512,512,16] parameter(0)
  b = f32[4,512,512,16] parameter(1)
  z = f32[] constant(0)
  p = f32[4,1024,512,16] pad(a, z), padding=0_0x0_1_1x0_0x0_0
  q = f32[4,1024,512,16] pad(a, z), padding=0_0x1_0_1x0_0x0_0
  s = f32[4,1024,512,16] add(p, q)
  f = f32[4,1,512,16] slice(b), slice={[0:4], [0:1], [0:512], [0:16]}
  g = f32[4,1023,512,16] slice(s), slice={[0:4], [1:1024], [0:512], [0:16]}
  ROOT c = f32[4,1024,512,16] concatenate(f, g), dimensions={1}
}
"""


@pytest.mark.parametrize("text", (TURNED_ROWS, SCAN), ids=("turned rows", "a scan's joints"))
def test_no_kernel_reads_its_operand_for_every_block(text: str) -> None:
    module = parse_module(text)
    chip = load_chip("v5e")
    run_pipeline(module, chip)
    for fusion in [i for i in module.entry if i.opcode == "fusion"]:
        traffic = WindowPlanner(chip).facts(fusion).traffic
        assert traffic.moved <= 4 * traffic.least


UPDATE = """HloModule update
ENTRY main {{
  x = f32[{rows},120] parameter(0)
  u = f32[3000,120] parameter(1)
  i = s32[] parameter(2)
  zero = s32[] constant(0)
  n = f32[3000,120] negate(u)
  ROOT y = f32[{rows},120] dynamic-update-slice(x, n, i, zero)
}}
"""


@pytest.mark.parametrize("rows", (4100, 8100))
@pytest.mark.parametrize("start", (-5, 0, 13, 1100, 8000))
def test_an_update_that_vmem_cannot_hold_is_made_in_parts(rows: int, start: int) -> None:
    module = parse_module(UPDATE.format(rows=rows))
    rng = np.random.default_rng(3)
    args = [rng.standard_normal(p.array.dims).astype(np.float32) for p in module.entry.parameters]
    args[2] = np.array(start, np.int32)
    wanted = evaluate(module, args, "highest")
    chip = replace(load_chip("v5e"), vmem_bytes=1 << 21)
    run_pipeline(module, chip)
    assert any(i.opcode == "while" for i in module.entry) == (rows == 8100)
    for fusion in [i for i in module.entry if i.opcode == "fusion"]:
        assert fusion.attrs["kind"] == "kLoop"
    np.testing.assert_array_equal(evaluate(module, args, "highest")[0], wanted[0])


def test_a_cut_that_is_too_dear_already_is_not_looked_at_further() -> None:
    class Counting(Judge):
        def cycles(self, part: FusionPart) -> int:
            asked.append(part)
            return 10

    asked: list[FusionPart] = []
    judge = Counting(WindowPlanner(load_chip("v5e")))
    module = parse_module(DISPATCH)
    run_pipeline(module, load_chip("v5e"))
    (fusion,) = [i for i in module.entry if i.opcode == "fusion"]
    parts = [FusionPart(fusion, (fusion.calls.root_instruction,))] * 3
    assert judge.cycles_below(31, parts) == 30
    assert len(asked) == 3
    assert judge.cycles_below(20, parts) >= 20
    assert len(asked) == 5


def test_one_operation_without_windows_becomes_loops() -> None:
    text = """HloModule m
ENTRY e {
  x = f32[33,7,1300] parameter(0)
  ROOT r = f32[1300,231] reshape(x)
}
"""
    executable = tpuc.compile(text, target="v5e{vmem=128KiB}")
    assert "in parts, by loops" in executable.program.metadata["remarks"]
    x = np.arange(33 * 7 * 1300, dtype=np.float32).reshape(33, 7, 1300)
    np.testing.assert_array_equal(executable(x)[0], x.reshape(1300, 231))


@pytest.mark.parametrize("operands", ("a, a", "a, b, a", "n, n"), ids=("twice", "about", "made"))
@pytest.mark.parametrize("size", (100_352, 100_353))
def test_a_long_array_joined_to_itself_is_read_in_several_places(operands: str, size: int) -> None:
    total = size * len(operands.split(","))
    text = f"""HloModule joined
ENTRY main {{
  a = f32[{size}] parameter(0)
  b = f32[{size}] parameter(1)
  n = f32[{size}] negate(a)
  ROOT c = f32[{total}] concatenate({operands}), dimensions={{0}}
}}
"""
    args = [np.random.default_rng(k).standard_normal(size).astype(np.float32) for k in range(2)]
    (wanted,) = evaluate(parse_module(text), args, "highest")
    (found,) = tpuc.compile(text, "v5e{vmem=256KiB}")(*args)
    np.testing.assert_array_equal(np.asarray(found), wanted)
