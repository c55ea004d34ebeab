"""A program that was compiled, run and forgotten leaves nothing of what the compiler knew of it."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from runtime.api import compile
from runtime.loaded import LoadedProgram
from runtime.machines import MachineOptions
from tpu_sim.isa.program import Program
from tpu_sim.jit.engine import NativeModule

pytestmark = pytest.mark.slow

KINDS = (HloModule, HloComputation, HloInstruction, Program, LoadedProgram, NativeModule)
HEAD = """HloModule forgotten
add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = f32[] add(a, b) }
"""
PROGRAMS = {
    "elementwise": """ENTRY e { x = f32[64,64] parameter(0)
 t = f32[64,64] tanh(x)
 ROOT r = f32[64,64] add(t, x) }""",
    "reduce": """ENTRY e { x = f32[64,64] parameter(0)
 z = f32[] constant(0)
 t = f32[64,64] exponential(x)
 ROOT r = f32[64] reduce(t, z), dimensions={1}, to_apply=add }""",
    "dot": """ENTRY e { x = f32[64,64] parameter(0)
 d = f32[64,64] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 ROOT r = f32[64,64] tanh(d) }""",
    "loop": """body { s = (s32[], f32[64,64]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 x = f32[64,64] get-tuple-element(s), index=1
 one = s32[] constant(1)
 j = s32[] add(i, one)
 y = f32[64,64] tanh(x)
 ROOT r = (s32[], f32[64,64]) tuple(j, y) }
cond { s = (s32[], f32[64,64]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 n = s32[] constant(3)
 ROOT r = pred[] compare(i, n), direction=LT }
ENTRY e { x = f32[64,64] parameter(0)
 z = s32[] constant(0)
 s = (s32[], f32[64,64]) tuple(z, x)
 w = (s32[], f32[64,64]) while(s), condition=cond, body=body
 ROOT r = f32[64,64] get-tuple-element(w), index=1 }""",
}


def living() -> dict[str, int]:
    gc.collect()
    found = gc.get_objects()
    return {kind.__name__: sum(type(o) is kind for o in found) for kind in KINDS}


def compile_and_run(text: str) -> None:
    made = compile(HEAD + text, machine=MachineOptions(cache=False))
    assert made.texts is not None, "it was compiled, not found"
    made(np.ones((64, 64), np.float32))


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_of_it_lives_on(name: str) -> None:
    compile_and_run(PROGRAMS[name])  # what all programs share is made at the first
    before = living()
    compile_and_run(PROGRAMS[name])
    assert living() == before
