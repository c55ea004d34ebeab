"""Stacks that a loop writes whole: their starts are neither made nor fetched; beside the evaluator."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

import compiler.driver as driver
from compiler.backend.kernel_options import KernelOptions
from tests.support.run_hlo import Array, compile_text, expected, run_compiled

COUNT = 20  # more trips than are written out


@dataclass(frozen=True)
class Case:
    """A loop that writes slab %p of a stack of sevens; `place` makes %p of the trip %i.

    `made`: whether the sevens are wanted; `read`: what a trip adds.
    """

    place: str
    trips: int = COUNT
    made: bool = False
    read: str = "broadcast(two), dimensions={}"

    @property
    def text(self) -> str:
        stack, slab = f"f32[{COUNT},8,128]", "f32[1,8,128]"
        state = f"(s32[], f32[8,128], {stack})"
        return f"""HloModule m
condition {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({self.trips})
  ROOT c = pred[] compare(i, n), direction=LT
}}
body {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  h = f32[8,128] get-tuple-element(s), index=1
  ys = {stack} get-tuple-element(s), index=2
  one = s32[] constant(1)
  z = s32[] constant(0)
  last = s32[] constant({COUNT - 1})
  two = f32[] constant(2)
  p = s32[] {self.place}
  k = {slab} {self.read}
  m = f32[8,128] reshape(k)
  g = f32[8,128] add(h, m)
  u = {slab} reshape(g)
  us = {stack} dynamic-update-slice(ys, u, p, z, z)
  j = s32[] add(i, one)
  ROOT r = {state} tuple(j, g, us)
}}
ENTRY e {{
  h = f32[8,128] parameter(0)
  i = s32[] constant(0)
  seven = f32[] constant(7)
  ys = {stack} broadcast(seven), dimensions={{}}
  t = {state} tuple(i, h, ys)
  loop = {state} while(t), condition=condition, body=body
  ROOT a = {stack} get-tuple-element(loop), index=2
}}
"""


CASES = {
    "in order": Case("copy(i)"),
    "the last first": Case("subtract(last, i)"),
    "more trips than slabs": Case("copy(i)", COUNT + 2),
    "some slabs": Case("copy(i)", COUNT - 1, made=True),
    "places are beyond it": Case("add(i, one)", made=True),
    "one place": Case("copy(z)", made=True),
    "slabs are read": Case(
        "copy(i)", made=True, read="dynamic-slice(ys, i, z, z), dynamic_slice_sizes={1,8,128}"
    ),
}


@pytest.mark.parametrize("in_vmem", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, in_vmem: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    options = partial(KernelOptions, loops_in_vmem=in_vmem)
    monkeypatch.setattr(driver, "KernelOptions", options)
    values: list[Array] = [np.arange(1024, dtype=np.float32).reshape(8, 128)]
    run = run_compiled(compile_text(case.text), values, "numpy")
    assert np.array_equal(run.outputs[0], expected(case.text, values)[0])
    assert any("loop in VMEM" in note for note in run.notes) == in_vmem
    assert any("broadcast" in note for note in run.notes) == case.made
