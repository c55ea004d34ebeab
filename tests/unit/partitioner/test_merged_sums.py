"""Sums over arrays that were flattened first: each device sums its part, nothing is gathered."""

from __future__ import annotations

import numpy as np

import tpuc

TEXT = """HloModule m, num_partitions=4

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY main {
  x = f32[6,16,10] parameter(0), sharding={devices=[1,4,1]<=[4]}
  y = f32[6,16,10] parameter(1), sharding={devices=[1,2,2]<=[4]}
  zero = f32[] constant(0)
  fx = f32[960] reshape(x)
  fy = f32[960] reshape(y)
  d = f32[] dot(fx, fy), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  s = f32[960] multiply(fx, fx)
  r = f32[] reduce(s, zero), dimensions={0}, to_apply=add
  bx = f32[6,160] reshape(x)
  by = f32[6,160] reshape(y)
  e = f32[6,6] dot(bx, by), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  ROOT t = (f32[], f32[], f32[6,6]) tuple(d, r, e), sharding={{replicated}, {replicated}, {replicated}}
}
"""


def test_parts_are_summed_where_they_lie() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(-4, 5, (2, 6, 16, 10)).astype(np.float32)
    exe = tpuc.compile(TEXT, target="v5e:2x2")
    dot, norm, table = exe(x, y)
    np.testing.assert_array_equal(dot, np.vdot(x, y))
    np.testing.assert_array_equal(norm, np.sum(x * x))
    np.testing.assert_array_equal(table, x.reshape(6, 160) @ y.reshape(6, 160).T)
    kinds = {str(found["kind"]) for found in exe.collectives}
    assert "all-gather" not in kinds
