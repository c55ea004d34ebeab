"""Arrays in SMEM, of which loops read elements as scalars, against the evaluator on both machines."""

from __future__ import annotations

import numpy as np
import pytest

import tpuc
from tests.support.against_evaluator import check

LIST = """HloModule m
body {
  p = (s32[], s32[], TYPE[40], s32[40,3], s32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  at = s32[] get-tuple-element(p), index=1
  value = TYPE[40] get-tuple-element(p), index=2
  next = s32[40,3] get-tuple-element(p), index=3
  sum = s32[] get-tuple-element(p), index=4
  one = s32[] constant(1)
  two = s32[] constant(2)
  more = s32[] add(i, one)
  row = s32[1,3] dynamic-slice(next, at, one), dynamic_slice_sizes={1,3}
  three = s32[3] reshape(row)
  cut = s32[1] dynamic-slice(three, two), dynamic_slice_sizes={1}
  there = s32[] reshape(cut)
  held = TYPE[1] dynamic-slice(value, there), dynamic_slice_sizes={1}
  single = TYPE[] reshape(held)
  number = s32[] convert(single)
  total = s32[] add(sum, number)
  odd = s32[] and(total, one)
  new = TYPE[] convert(odd)
  update = TYPE[1] reshape(new)
  changed = TYPE[40] dynamic-update-slice(value, update, at)
  ROOT r = (s32[], s32[], TYPE[40], s32[40,3], s32[]) tuple(more, there, changed, next, total)
}
condition {
  p = (s32[], s32[], TYPE[40], s32[40,3], s32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(30)
  ROOT r = pred[] compare(i, n), direction=LT
}
ENTRY main {
  value = TYPE[40] parameter(0)
  next = s32[40,3] parameter(1)
  zero = s32[] constant(0)
  state = (s32[], s32[], TYPE[40], s32[40,3], s32[]) tuple(zero, zero, value, next, zero)
  loop = (s32[], s32[], TYPE[40], s32[40,3], s32[]) while(state), condition=condition, body=body
  after = TYPE[40] get-tuple-element(loop), index=2
  total = s32[] get-tuple-element(loop), index=4
  ROOT r = (TYPE[40], s32[]) tuple(after, total)
}
"""

UNION = """HloModule m
up {
  p = (s32[24], s32[]) parameter(0)
  parent = s32[24] get-tuple-element(p), index=0
  x = s32[] get-tuple-element(p), index=1
  cut = s32[1] dynamic-slice(parent, x), dynamic_slice_sizes={1}
  above = s32[] reshape(cut)
  again = s32[1] dynamic-slice(parent, above), dynamic_slice_sizes={1}
  half = s32[24] dynamic-update-slice(parent, again, x)
  there = s32[] reshape(again)
  ROOT r = (s32[24], s32[]) tuple(half, there)
}
below {
  p = (s32[24], s32[]) parameter(0)
  parent = s32[24] get-tuple-element(p), index=0
  x = s32[] get-tuple-element(p), index=1
  cut = s32[1] dynamic-slice(parent, x), dynamic_slice_sizes={1}
  above = s32[] reshape(cut)
  ROOT r = pred[] compare(above, x), direction=NE
}
body {
  p = (s32[], s32[24], s32[20,2]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  parent = s32[24] get-tuple-element(p), index=1
  edges = s32[20,2] get-tuple-element(p), index=2
  zero = s32[] constant(0)
  one = s32[] constant(1)
  more = s32[] add(i, one)
  first = s32[1,1] dynamic-slice(edges, i, zero), dynamic_slice_sizes={1,1}
  a = s32[] reshape(first)
  state = (s32[24], s32[]) tuple(parent, a)
  found = (s32[24], s32[]) while(state), condition=below, body=up
  root = s32[] get-tuple-element(found), index=1
  flatter = s32[24] get-tuple-element(found), index=0
  second = s32[1,1] dynamic-slice(edges, i, one), dynamic_slice_sizes={1,1}
  b = s32[1] reshape(second)
  joined = s32[24] dynamic-update-slice(flatter, b, root)
  WHOLE
  ROOT r = (s32[], s32[24], s32[20,2]) tuple(more, joined, edges)
}
condition {
  p = (s32[], s32[24], s32[20,2]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(20)
  ROOT r = pred[] compare(i, n), direction=LT
}
ENTRY main {
  edges = s32[20,2] parameter(0)
  zero = s32[] constant(0)
  each = s32[24] iota(), iota_dimension=0
  state = (s32[], s32[24], s32[20,2]) tuple(zero, each, edges)
  loop = (s32[], s32[24], s32[20,2]) while(state), condition=condition, body=body
  ROOT r = s32[24] get-tuple-element(loop), index=1
}
"""


@pytest.mark.parametrize("kind", ["s32", "u32", "f32", "pred"])
def test_elements_of_every_type_with_places_outside(kind: str) -> None:
    random = np.random.default_rng(3)
    dtype = {"s32": np.int32, "u32": np.uint32, "f32": np.float32, "pred": np.bool_}[kind]
    value = random.integers(0, 2, 40).astype(dtype)
    places = random.integers(-20, 60, (40, 3)).astype(np.int32)
    check(LIST.replace("TYPE", kind), [value, places])


@pytest.mark.parametrize("target", ["v5e", "v3"])
def test_loops_in_loops_that_write_elements(target: str) -> None:
    """Edges lead to smaller numbers, so that there are no circles."""
    high = np.random.default_rng(5).integers(1, 24, 20)
    edges = np.stack([high, high // 2], 1).astype(np.int32)
    check(UNION.replace("  WHOLE\n", ""), [edges], target=target)


def test_an_array_that_changes_as_a_whole_is_copied_for_the_inner_loop() -> None:
    text = UNION.replace("WHOLE", "least = s32[24] constant({...})".replace("{...}", _NUMBERS))
    text = text.replace("tuple(more, joined,", "tuple(more, whole,")
    text = text.replace("  ROOT r = (s32[], s32[24], s32[20,2]) tuple(more", _WHOLE)
    high = np.random.default_rng(5).integers(1, 24, 20)
    check(text, [np.stack([high, high // 2], 1).astype(np.int32)])


_NUMBERS = "{" + ", ".join(str(n) for n in range(24)) + "}"
_WHOLE = """  whole = s32[24] minimum(joined, least)
  ROOT r = (s32[], s32[24], s32[20,2]) tuple(more"""


def test_a_turn_waits_for_no_transfer() -> None:
    """A transfer from VMEM to SMEM takes 690 cycles."""
    times = []
    for trips in (100, 1100):
        text = LIST.replace("TYPE", "s32").replace("constant(30)", f"constant({trips})")
        times.append(tpuc.compile(text, "v5e").estimate().cycles)
    assert (times[1] - times[0]) / 1000 < 150
