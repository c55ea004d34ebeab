"""A kernel that reads one row of every tile fetches that row alone."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tpuc
from compiler.hlo.evaluator import evaluate
from compiler.hlo.parser import parse_module
from runtime.machines import MachineOptions

TEXT = """HloModule m
f {{
  a = {t}[] parameter(0)
  b = {t}[] parameter(1)
  ROOT r = {t}[] add(a, b)
}}
ENTRY e {{
  w = {t}[{k},{layers},{n}] parameter(0)
  x = {t}[3,{k}] parameter(1)
  i = s32[] parameter(2)
  zero = {t}[] constant(0)
  z = s32[] constant(0)
  s = {t}[{k},1,{n}] dynamic-slice(w, z, i, z), dynamic_slice_sizes={{{k},1,{n}}}
  r = {t}[{k},{n}] reshape(s)
  d = {t}[3,{n}] dot(x, r), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  n = {t}[{k},{n}] negate(r)
  a = {t}[{n}] reduce(n, zero), dimensions={{0}}, to_apply=f
  ROOT t = ({t}[3,{n}], {t}[{k},{n}], {t}[{n}]) tuple(d, n, a)
}}
"""
TYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "s8": np.int8, "u16": np.uint16}
SIZES = [(5, 3, 7), (40, 16, 130), (33, 19, 128), (9, 100, 300)]
MACHINES = [MachineOptions(), MachineOptions("numpy", checked=True)]


@pytest.mark.parametrize("machine", MACHINES, ids=["llvm", "checked"])
@pytest.mark.parametrize("k, layers, n", SIZES)
@pytest.mark.parametrize("dtype", TYPES)
def test_one_slice_of_a_stack_is_read_by_rows(
    dtype: str, k: int, layers: int, n: int, machine: MachineOptions
) -> None:
    text = TEXT.format(t=dtype, k=k, layers=layers, n=n)
    rng = np.random.default_rng(0)
    w = rng.integers(0, 4, (k, layers, n)).astype(TYPES[dtype])
    x = rng.integers(0, 3, (3, k)).astype(TYPES[dtype])
    exe = tpuc.compile(text, machine=machine)
    module = parse_module(text)
    for i in (0, 1, layers // 2, layers + 5):
        inputs = [w, x, np.int32(i)]
        for got, want in zip(exe(*inputs), evaluate(module, inputs), strict=True):
            np.testing.assert_array_equal(np.asarray(got), want)


def test_an_eighth_of_the_stack_is_moved() -> None:
    text = TEXT.format(t="f32", k=512, layers=8, n=512)
    exe = tpuc.compile(text)
    once = 3 * 512 * 512 * 4  # read by the dot and by what is negated, which is written
    assert exe.estimate().hbm_bytes < 1.1 * once
