"""The `scan` opcode: forward and reverse, several inputs and carries, any dimension; the machine
and the evaluator against XLA on the CPU."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")
pytest.importorskip("jax")

import tpuc
from compiler.diagnostics import CompileError
from tests.support.same_values import assert_same
from tests.support.three_ways import evaluator, machine, xla

Array = np.ndarray[Any, Any]

STEP = """HloModule m
step {
  x = f32[3] parameter(0)
  c = f32[3] parameter(1)
  s = f32[3] add(c, x)
  d = f32[3] multiply(s, x)
  ROOT t = (f32[3], f32[3]) tuple(d, s)
}
"""
ENTRY = """ENTRY e {
  x = f32[SIZE,3] parameter(0)
  i = f32[3] parameter(1)
  ROOT r = (f32[SIZE,3], f32[3]) scan(x, i), dimensions={0}, num_carries=1, to_apply=step
}
"""
WIDE = """HloModule m
step {
  a = f32[5] parameter(0)
  b = s32[2,2] parameter(1)
  c = f32[5] parameter(2)
  k = s32[] parameter(3)
  one = s32[] constant(1)
  next = s32[] add(k, one)
  s = f32[5] add(c, a)
  spread = s32[2,2] broadcast(next), dimensions={}
  moved = s32[2,2] add(b, spread)
  ROOT t = (s32[2,2], f32[5], f32[5], s32[]) tuple(moved, s, s, next)
}
ENTRY e {
  i = f32[5,3] parameter(0)
  b = s32[2,3,2] parameter(1)
  z = f32[5] parameter(2)
  k = s32[] constant(7)
  ROOT r = (s32[2,3,2], f32[5,3], f32[5], s32[]) scan(i, b, z, k),
    dimensions={1}, num_carries=2, to_apply=step
}
"""
NO_INPUT = """HloModule m
step {
  c = f32[3] parameter(0)
  s = f32[3] add(c, c)
  ROOT t = (f32[3], f32[3]) tuple(c, s)
}
ENTRY e {
  i = f32[3] parameter(0)
  ROOT r = (f32[4,3], f32[3]) scan(i), dimensions={0}, num_carries=1, to_apply=step
}
"""
NO_CARRY = """HloModule m
step {
  c = f32[5] parameter(0)
  ROOT s = f32[5] add(c, c)
}
ENTRY e {
  i = f32[5,3] parameter(0)
  ROOT r = f32[5,3] scan(i), dimensions={1}, num_carries=0, to_apply=step
}
"""
NO_OUTPUT = """HloModule m
step {
  x = s8[] parameter(0)
  c = s8[] parameter(1)
  ROOT s = s8[] add(c, x)
}
ENTRY e {
  x = s8[129] parameter(0)
  i = s8[] parameter(1)
  ROOT r = s8[] scan(x, i), dimensions={0}, num_carries=1, to_apply=step
}
"""
GRID = np.arange(15, dtype=np.float32)
CASES: dict[str, tuple[str, Sequence[Array]]] = {
    "one of each": (STEP + ENTRY.replace("SIZE", "5"), (GRID.reshape(5, 3), GRID[5:8])),
    "one step": (STEP + ENTRY.replace("SIZE", "1"), (GRID[:3].reshape(1, 3), GRID[5:8])),
    "several": (
        WIDE,
        (GRID.reshape(5, 3), np.arange(12, dtype=np.int32).reshape(2, 3, 2), GRID[:5]),
    ),
    "no input": (NO_INPUT, (GRID[1:4],)),
    "no carry": (NO_CARRY, (GRID.reshape(5, 3),)),
    "no output": (NO_OUTPUT, (np.arange(129).astype(np.int8), np.array(5, np.int8))),
}


@pytest.mark.parametrize("direction", ["forward", "reverse"])
@pytest.mark.parametrize("name", CASES)
def test_scan(name: str, direction: str) -> None:
    text, args = CASES[name]
    if direction == "reverse":
        text = text.replace(", to_apply", ", is_reverse=true, to_apply")
    wanted = xla(text, args)
    for got in (machine(text, args), evaluator(text, args)):
        for mine, want in zip(got, wanted, strict=True):
            assert_same(mine, want, name)


def test_a_scan_over_nothing_returns_its_initial_carries() -> None:
    text, args = STEP + ENTRY.replace("SIZE", "0"), (np.zeros((0, 3), np.float32), GRID[5:8])
    for got in (machine(text, args), evaluator(text, args)):
        assert got[0].shape == (0, 3)
        np.testing.assert_array_equal(got[1], args[1])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("(f32[SIZE,3], f32[3]) scan", "(f32[SIZE,4], f32[3]) scan", "scan"),
        ("num_carries=1", "num_carries=3", "3 carries of 2 operands"),
        ("dimensions={0}", "dimensions={2}", "no dimension 2 to scan"),
        ("scan(x, i)", "scan(i, i)", "is f32\\[3\\], want f32\\[\\]"),
        ("scan(x, i)", "scan(x, x)", "is f32\\[3\\], want f32\\[5,3\\]"),
    ],
)
def test_ill_typed_scans_are_refused(old: str, new: str, message: str) -> None:
    text = STEP + ENTRY.replace(old, new).replace("SIZE", "5")
    with pytest.raises(CompileError, match=message):
        tpuc.compile(text)
