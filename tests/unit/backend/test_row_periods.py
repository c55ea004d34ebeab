"""Rows that move in groups of a few are read by code that knows where in a tile each group begins."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tpuc
from compiler.analysis.block_shapes import block_shapes, last_resort
from compiler.analysis.iteration_space import IterationDim, IterationSpace
from compiler.hlo.evaluator import evaluate
from compiler.hlo.parser import parse_module
from runtime.machines import MachineOptions

_WINDOWS = """HloModule m
f {{
  a = {t}[] parameter(0)
  b = {t}[] parameter(1)
  ROOT r = {t}[] maximum(a, b)
}}
ENTRY e {{
  x = {t}[{n},{h},{h},{c}] parameter(0)
  s = {t}[{n},{top},{h},{c}] slice(x), slice={{[0:{n}], [{cut}:{h}], [0:{h}], [0:{c}]}}
  u = {t}[{n},{cut},{h},{c}] slice(x), slice={{[0:{n}], [0:{cut}], [0:{h}], [0:{c}]}}
  j = {t}[{n},{h},{h},{c}] concatenate(s, u), dimensions={{1}}
  p = {t}[{n},{g},{w},{g},{w},{c}] reshape(j)
  q = {t}[{n},{g},{g},{w},{w},{c}] transpose(p), dimensions={{0,1,3,2,4,5}}
  r = {t}[{rows},{c}] reshape(q)
  least = {t}[] constant(-inf)
  m = {t}[{rows}] reduce(r, least), dimensions={{1}}, to_apply=f
  b = {t}[{rows},{c}] broadcast(m), dimensions={{0}}
  ROOT d = {t}[{rows},{c}] subtract(r, b)
}}
"""
_TYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16}
_MACHINES = [MachineOptions(), MachineOptions("numpy", checked=True)]


def _text(dtype: str, n: int, g: int, w: int, c: int) -> str:
    h, cut = g * w, w // 2
    names = {"t": dtype, "n": n, "g": g, "w": w, "c": c, "h": h, "cut": cut, "top": h - cut}
    return _WINDOWS.format(**names, rows=n * h * h)


@pytest.mark.parametrize("machine", _MACHINES, ids=["llvm", "checked"])
@pytest.mark.parametrize("n, g, w, c", [(2, 8, 7, 24), (1, 4, 7, 130), (3, 2, 5, 8), (8, 4, 6, 16)])
@pytest.mark.parametrize("dtype", _TYPES)
def test_windows_of_an_image(
    dtype: str, n: int, g: int, w: int, c: int, machine: MachineOptions
) -> None:
    text = _text(dtype, n, g, w, c)
    x = np.random.default_rng(0).standard_normal((n, g * w, g * w, c)).astype(_TYPES[dtype])
    (got,) = tpuc.compile(text, machine=machine)(x)
    (want,) = evaluate(parse_module(text), [x])
    np.testing.assert_array_equal(np.asarray(got), want)


@pytest.mark.parametrize("dtype, cycles", [("f32", 200_000), ("bf16", 260_000)])
def test_windows_take_a_few_loads_a_register(dtype: str, cycles: int) -> None:
    assert tpuc.compile(_text(dtype, 8, 8, 7, 96)).estimate().cycles < cycles


_ROLLED = """HloModule m
f {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}}
ENTRY e {{
  x = {t}[{rows},{c}] parameter(0)
  y = {t}[{rows},{c}] parameter(1)
  p = {t}[{n},{g},{g},{w},{w},{c}] reshape(x)
  q = {t}[{n},{g},{w},{g},{w},{c}] transpose(p), dimensions={{0,1,3,2,4,5}}
  i = {t}[{n},{h},{h},{c}] reshape(q)
  a = {t}[{n},{cut},{h},{c}] slice(i), slice={{[0:{n}], [{top}:{h}], [0:{h}], [0:{c}]}}
  b = {t}[{n},{top},{h},{c}] slice(i), slice={{[0:{n}], [0:{top}], [0:{h}], [0:{c}]}}
  j = {t}[{n},{h},{h},{c}] concatenate(a, b), dimensions={{1}}
  d = {t}[{n},{h},{cut},{c}] slice(j), slice={{[0:{n}], [0:{h}], [{top}:{h}], [0:{c}]}}
  e = {t}[{n},{h},{top},{c}] slice(j), slice={{[0:{n}], [0:{h}], [0:{top}], [0:{c}]}}
  k = {t}[{n},{h},{h},{c}] concatenate(d, e), dimensions={{2}}
  l = {t}[{rows},{c}] reshape(k)
  m = {t}[{rows},{c}] add(l, y)
  v = f32[{rows},{c}] convert(m)
  zero = f32[] constant(0)
  s = f32[{rows}] reduce(v, zero), dimensions={{1}}, to_apply=f
  sb = f32[{rows},{c}] broadcast(s), dimensions={{0}}
  u = f32[{rows},{c}] subtract(v, sb)
  uu = f32[{rows},{c}] multiply(u, u)
  z = f32[{rows}] reduce(uu, zero), dimensions={{1}}, to_apply=f
  zb = f32[{rows},{c}] broadcast(z), dimensions={{0}}
  o = f32[{rows},{c}] add(u, zb)
  ROOT r = {t}[{rows},{c}] convert(o)
}}
"""


def _rolled(dtype: str, n: int, g: int, w: int, c: int) -> str:
    h, cut = g * w, w // 2
    names = {"t": dtype, "n": n, "g": g, "w": w, "c": c, "h": h, "cut": cut, "top": h - cut}
    return _ROLLED.format(**names, rows=n * h * h)


@pytest.mark.parametrize("machine", _MACHINES, ids=["llvm", "checked"])
@pytest.mark.parametrize("n, g, w, c", [(2, 4, 7, 24), (1, 8, 7, 130), (3, 2, 5, 8)])
@pytest.mark.parametrize("dtype", _TYPES)
def test_rows_of_windows_that_are_rolled_and_normalised(
    dtype: str, n: int, g: int, w: int, c: int, machine: MachineOptions
) -> None:
    """Small integers, so that sums are exact in any order."""
    rng = np.random.default_rng(1)
    args = [rng.integers(-2, 3, (n * (g * w) ** 2, c)).astype(_TYPES[dtype]) for _ in range(2)]
    text = _rolled(dtype, n, g, w, c)
    (got,) = tpuc.compile(text, machine=machine)(*args)
    (want,) = evaluate(parse_module(text), args)
    np.testing.assert_array_equal(np.asarray(got), want)


@pytest.mark.parametrize("dtype, cycles", [("f32", 120_000), ("bf16", 100_000)])
def test_rolled_windows_take_a_few_loads_a_register(dtype: str, cycles: int) -> None:
    """Sums of rows and what follows are one chain, by the period of the windows behind the roll."""
    assert tpuc.compile(_rolled(dtype, 8, 8, 7, 96)).estimate().cycles < cycles


def _with_sums(dtype: str, n: int, g: int, w: int, c: int) -> str:
    """The same module, which gives the sums of the rows, too."""
    rows = n * (g * w) ** 2
    head, tail = _rolled(dtype, n, g, w, c).replace("ROOT r = ", "r = ").rsplit("}", 1)
    root = f"  ROOT t = ({dtype}[{rows},{c}], f32[{rows}]) tuple(r, s)"
    return f"{head}{root}\n}}{tail}"


@pytest.mark.parametrize("machine", _MACHINES, ids=["llvm", "checked"])
def test_sums_of_rows_that_are_results(machine: MachineOptions) -> None:
    rng = np.random.default_rng(1)
    args = [rng.integers(-2, 3, (1568, 24)).astype(ml_dtypes.bfloat16) for _ in range(2)]
    text = _with_sums("bf16", 2, 4, 7, 24)
    for got, want in zip(
        tpuc.compile(text, machine=machine)(*args), evaluate(parse_module(text), args), strict=True
    ):
        np.testing.assert_array_equal(np.asarray(got), want)


def test_sums_of_rows_that_are_results_are_of_the_chain() -> None:
    executable = tpuc.compile(_with_sums("bf16", 16, 8, 7, 96))
    assert executable.estimate().cycles < 200_000


def test_rows_whose_blocks_begin_anywhere_are_moved_before() -> None:
    """Blocks of f32[50176] hold 1,024 rows and so begin anywhere in a window of 49."""
    executable = tpuc.compile(_with_sums("bf16", 16, 8, 7, 96), target="v5e{vmem=16MiB}")
    assert executable.estimate().cycles < 400_000
    assert "blocks of the whole begin anywhere" in executable.program.metadata["remarks"]


_TAPS = """HloModule m
ENTRY e {{
  x = f32[{n},{h},{w},{c}] parameter(0)
  k = f32[3,3,{c},64] parameter(1)
  ROOT r = f32[{n},{h},{w},64] convolution(x, k), window={{size=3x3 pad=1_1x1_1}}, dim_labels=b01f_01io->b01f
}}
"""


@pytest.mark.parametrize("machine", _MACHINES, ids=["llvm", "checked"])
@pytest.mark.parametrize("n, h, w, c", [(2, 8, 24, 64), (1, 4, 40, 72), (2, 16, 28, 128)])
def test_taps_side_by_side_of_rows_that_begin_within_a_tile(
    n: int, h: int, w: int, c: int, machine: MachineOptions
) -> None:
    """A tile is known by its place in the period and its column."""
    text = _TAPS.format(n=n, h=h, w=w, c=c)
    rng = np.random.default_rng(3)
    args = [rng.integers(-3, 4, s).astype(np.float32) for s in ((n, h, w, c), (3, 3, c, 64))]
    (got,) = tpuc.compile(text, machine=machine)(*args)
    (want,) = evaluate(parse_module(text), args)
    np.testing.assert_array_equal(np.asarray(got), want)


def test_taps_take_a_few_loads_a_register() -> None:
    assert tpuc.compile(_TAPS.format(n=4, h=56, w=56, c=64)).estimate().cycles < 100_000


def test_blocks_hold_whole_periods_unless_nothing_fits() -> None:
    rows = IterationDim(50176, 8, period=49)
    space = IterationSpace((rows, IterationDim(96, 128)), ((0, 1),))
    assert all(sizes[0] % 49 == 0 for sizes in block_shapes(space, has_dot=False))
    assert any(sizes[0] < 49 for sizes in last_resort(space, has_dot=False))
