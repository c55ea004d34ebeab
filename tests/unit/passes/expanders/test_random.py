"""Random bits and numbers without side effects."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.expansions import expanded, on_machine, reference

BITS = """HloModule m
ENTRY e {{
  s = u64[{words}] parameter(0)
  ROOT r = (u64[{words}], {t}[{dims}]) rng-bit-generator(s), algorithm={algorithm}
}}
"""
STATES = ([5, 2**64 - 3, 7], [123456789123, 42, 2**64 - 1])


@pytest.mark.parametrize("dtype", ["u8", "u16", "u32", "s32", "u64"])
@pytest.mark.parametrize(
    ("algorithm", "words"),
    [("rng_three_fry", 2), ("rng_philox", 2), ("rng_philox", 3), ("rng_default", 3)],
)
def test_bits_are_those_of_the_algorithm(algorithm: str, words: int, dtype: str) -> None:
    for dims in ("", "7", "3,5", "6,3,2"):
        text = BITS.format(words=words, t=dtype, dims=dims, algorithm=algorithm)
        for state in STATES:
            inputs = [np.array(state[:words], np.uint64)]
            got = expanded(text, inputs, ["rng-expander"], ["rng-bit-generator"])
            for a, b in zip(reference(text, inputs), got, strict=True):
                np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("algorithm", ["rng_three_fry", "rng_philox"])
def test_bits_on_the_machine(algorithm: str) -> None:
    text = BITS.format(words=2, t="u32", dims="3,50", algorithm=algorithm)
    inputs = [np.array(STATES[0][:2], np.uint64)]
    for a, b in zip(reference(text, inputs), on_machine(text, inputs), strict=True):
        np.testing.assert_array_equal(a, b)


NUMBERS = """HloModule m
condition {
  s = (s32[], f32[8,128]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(12)
  ROOT r = pred[] compare(i, n), direction=LT
}
body {
  s = (s32[], f32[8,128]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[8,128] get-tuple-element(s), index=1
  low = f32[] constant(0)
  high = f32[] constant(1)
  u = f32[8,128] rng(low, high), distribution=rng_uniform
  y = f32[8,128] add(x, u)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT t = (s32[], f32[8,128]) tuple(j, y)
}
ENTRY e {
  i = s32[] constant(0)
  zero = f32[] constant(0)
  two = f32[] constant(2)
  x = f32[8,128] broadcast(zero), dimensions={}
  init = (s32[], f32[8,128]) tuple(i, x)
  loop = (s32[], f32[8,128]) while(init), condition=condition, body=body
  total = f32[8,128] get-tuple-element(loop), index=1
  normal = f32[64,64] rng(zero, two), distribution=rng_normal
  least = s32[] constant(-3)
  most = s32[] constant(4)
  whole = s32[2100] rng(least, most), distribution=rng_uniform
  ROOT r = (f32[8,128], f32[64,64], s32[2100]) tuple(total, normal, whole)
}
"""


def test_draws_in_a_loop_are_independent_and_distributed_as_asked() -> None:
    names = ["random-state"]
    total, normal, whole = expanded(NUMBERS, [], names, ["rng"])
    # a sum of 12 independent uniform numbers has variance 1; of 12 equal ones, 12
    assert abs(float(total.mean()) - 6) < 0.15
    assert abs(float(total.var()) - 1) < 0.2
    assert abs(float(normal.mean())) < 0.15
    assert abs(float(normal.std()) - 2) < 0.1
    counts = np.bincount(whole + 3, minlength=7)
    assert counts.shape == (7,)
    assert counts.min() > 230


def test_draws_on_the_machine() -> None:
    for a, b in zip(expanded(NUMBERS, [], ["random-state"]), on_machine(NUMBERS, []), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
