"""A sum in bf16 that a kernel leaves in memory is the same for all who read it."""

from __future__ import annotations

import numpy as np

import tpuc

TEXT = """HloModule m
add {
  a = bf16[] parameter(0)
  b = bf16[] parameter(1)
  ROOT r = bf16[] add(a, b)
}
ENTRY e {
  x = s32[7,3] parameter(0)
  narrow = bf16[7,3] convert(x)
  zero = bf16[] constant(0)
  sums = bf16[7] reduce(narrow, zero), dimensions={1}, to_apply=add
  wide = f32[7] convert(sums)
  equal = f32[7,3] broadcast(wide), dimensions={0}
  whole = s32[7,3] convert(equal)
  t = (s32[7,3], s32[7,3]) topk(whole), k=3, largest=true
  ROOT places = s32[7,3] get-tuple-element(t), index=1
}
"""


def test_places_of_equal_sums_are_in_order() -> None:
    x = np.arange(21, dtype=np.int32).reshape(7, 3) * 1000 - 7000
    (places,) = tpuc.compile(TEXT)(x)
    np.testing.assert_array_equal(np.asarray(places), np.tile(np.arange(3), (7, 1)))
