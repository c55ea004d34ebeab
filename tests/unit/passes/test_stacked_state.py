"""Stacks of small matrices that loops read and write slice by slice lie in memory without padding."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import compiler.passes.stacked_state as stacked_state
from tests.support.run_hlo import Run, check_text, normal

SCAN = """HloModule m
body {{
  s = (s32[], {t}[6,16,5,4], {t}[6,16,5,4], {t}[16,5,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  xs = {t}[6,16,5,4] get-tuple-element(s), index=1
  ys = {t}[6,16,5,4] get-tuple-element(s), index=2
  c = {t}[16,5,4] get-tuple-element(s), index=3
  z = s32[] constant(0)
  x = {t}[1,16,5,4] dynamic-slice(xs, i, z, z, z), dynamic_slice_sizes={{1,16,5,4}}
  x3 = {t}[16,5,4] reshape(x)
  a = {t}[16,5,4] add(x3, c)
  y = {t}[1,16,5,4] reshape(a)
  u = {t}[6,16,5,4] dynamic-update-slice(ys, y, i, z, z, z)
  {extra}
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT t = (s32[], {t}[6,16,5,4], {t}[6,16,5,4], {t}[16,5,4]) tuple(j, xs, {last}, a)
}}
condition {{
  s = (s32[], {t}[6,16,5,4], {t}[6,16,5,4], {t}[16,5,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(6)
  ROOT r = pred[] compare(i, n), direction=LT
}}
ENTRY main {{
  p = {t}[6,16,5,4] parameter(0)
  c = {t}[16,5,4] parameter(1)
  i = s32[] constant(0)
  xs = {t}[6,16,5,4] add(p, p)
  f = {t}[] constant(7)
  ys = {t}[6,16,5,4] broadcast(f), dimensions={{}}
  s = (s32[], {t}[6,16,5,4], {t}[6,16,5,4], {t}[16,5,4]) tuple(i, xs, ys, c)
  w = (s32[], {t}[6,16,5,4], {t}[6,16,5,4], {t}[16,5,4]) while(s), condition=condition, body=body
  ROOT r = {t}[6,16,5,4] get-tuple-element(w), index=2
}}
"""
OTHER = "v = f32[6,16,5,4] negate(u)"


@pytest.fixture(autouse=True)
def _small_arrays_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacked_state, "_LEAST_BYTES", 0)


def merged(run: Run) -> int:
    timings = {t.name: t for t in run.compiled.passes}
    return timings["stacked-state"].counts.get("arrays", 0)


def test_a_stack_that_some_order_pads_little_keeps_its_dimensions() -> None:
    text = SCAN.format(t="f32", extra="", last="u").replace("16,5,4", "128,8,4")
    run = check_text(text, [normal(0, 6, 128, 8, 4), normal(1, 128, 8, 4)])
    assert merged(run) == 0


@pytest.mark.parametrize("machine", ["numpy", "llvm"])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "s8"])
def test_both_stacks_of_a_scan_are_merged(dtype: str, machine: str) -> None:
    text = SCAN.format(t=dtype, extra="", last="u")
    if dtype == "s8":
        source = np.random.default_rng(0)
        inputs = [source.integers(-9, 9, d).astype(np.int8) for d in ((6, 16, 5, 4), (16, 5, 4))]
    else:
        name = {"f32": "float32", "bf16": "bfloat16"}[dtype]
        inputs = [normal(0, 6, 16, 5, 4, dtype=name), normal(1, 16, 5, 4, dtype=name)]
    run = check_text(text, inputs, machine=machine, tolerance=1e-2 if dtype == "bf16" else 0)
    assert merged(run) == 2
    assert f"{dtype}[6,1,320]" in run.compiled.hlo_text()


def test_an_array_that_is_used_whole_is_left() -> None:
    run = check_text(
        SCAN.format(t="f32", extra=OTHER, last="v"), [normal(0, 6, 16, 5, 4), normal(1, 16, 5, 4)]
    )
    assert merged(run) == 1


@pytest.mark.parametrize("dtype", ["f32", "bf16", "s8"])
def test_rows_of_matrices_lie_apart(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the state does not fit VMEM; there, rows of a matrix are eight to a register."""
    text = SCAN.format(t=dtype, extra="", last="u")
    for old, new in (
        ("[6,16,5,4]", "[9,640]"), ("[1,16,5,4]", "[1,640]"), ("[16,5,4]", "[640]"),
        ("i, z, z, z)", "i, z)"), ("{1,16,5,4}", "{1,640}"), ("constant(6)", "constant(9)"),
    ):  # fmt: skip
        text = text.replace(old, new)
    source = np.random.default_rng(0)
    name = {"f32": "float32", "bf16": "bfloat16", "s8": "int8"}[dtype]
    values = [source.integers(-9, 9, d) for d in ((9, 640), (640,))]
    inputs = [np.asarray(v).astype(ml_dtypes.bfloat16 if dtype == "bf16" else name) for v in values]
    assert merged(check_text(text, inputs)) == 0
    monkeypatch.setattr(stacked_state, "state_fits", lambda loop, size: False)
    run = check_text(text, inputs)
    assert merged(run) == (0 if dtype == "s8" else 2)
    assert dtype == "s8" or f"{dtype}[9,1,640]" in run.compiled.hlo_text()
