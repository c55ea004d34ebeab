"""Small programs with known results, each of another text so that nothing is found compiled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import tpuc

SIDE = 256
_PRODUCT = """HloModule product_{k}
ENTRY e {{
  x = f32[{rows},{side}] parameter(0)
  w = f32[{side},{columns}] parameter(1)
  d = f32[{rows},{columns}] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  c = f32[] constant({k})
  b = f32[{rows},{columns}] broadcast(c), dimensions={{}}
  ROOT r = f32[{rows},{columns}] add(d, b)
}}
"""
_LOOP = """HloModule loop
c {{
  s = (s32[], f32[{side},{side}]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({trips})
  ROOT r = pred[] compare(i, n), direction=LT
}}
b {{
  s = (s32[], f32[{side},{side}]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[{side},{side}] get-tuple-element(s), index=1
  o = s32[] constant(1)
  j = s32[] add(i, o)
  h = f32[] constant(0.5)
  f = f32[{side},{side}] broadcast(h), dimensions={{}}
  y = f32[{side},{side}] multiply(x, f)
  ROOT t = (s32[], f32[{side},{side}]) tuple(j, y)
}}
ENTRY e {{
  x = f32[{side},{side}] parameter(0)
  z = s32[] constant(0)
  t = (s32[], f32[{side},{side}]) tuple(z, x)
  w = (s32[], f32[{side},{side}]) while(t), condition=c, body=b
  ROOT r = f32[{side},{side}] get-tuple-element(w), index=1
}}
"""


@dataclass(frozen=True)
class KnownProgram:
    """A text, its arguments and the one result that is right."""

    text: str
    arguments: tuple[np.ndarray[Any, Any], ...]
    result: np.ndarray[Any, Any]

    def check(self, executable: tpuc.Executable) -> None:
        """Run and compare; AssertionError for another result."""
        (found,) = executable(*self.arguments)
        assert np.array_equal(found, self.result), "the result is another one"


def product(number: int) -> KnownProgram:
    """A dot and a sum whose values are whole numbers, exact in one bf16 pass."""
    rows, columns = 64 + 8 * (number % 5), 128 * (1 + number % 3)
    text = _PRODUCT.format(k=number, rows=rows, columns=columns, side=SIDE)
    x = (np.arange(rows * SIDE) % 5 - 2).astype(np.float32).reshape(rows, SIDE)
    w = (np.arange(SIDE * columns) % 7 - 3).astype(np.float32).reshape(SIDE, columns)
    return KnownProgram(text, (x, w), x @ w + np.float32(number))


def loop(trips: int) -> KnownProgram:
    """A loop that halves an array `trips` times (at most 100: halves stay exact)."""
    x = (np.arange(SIDE * SIDE) % 100).astype(np.float32).reshape(SIDE, SIDE)
    return KnownProgram(_LOOP.format(side=SIDE, trips=trips), (x,), x * np.float32(0.5**trips))
